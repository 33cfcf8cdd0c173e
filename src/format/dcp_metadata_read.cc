#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <optional>
#include <system_error>
#include <utility>

#include "base/source.h"
#include "cairn/dcp_metadata.h"
#include "cairn/error.h"
#include "format/budget.h"
#include "format/dcp_metadata.h"
#include "format/dcp_reducer.h"
#include "format/names.h"
#include "format/pickle.h"
#include "format/pickle_survey.h"

namespace cairn {

using pickle::Graph;
using pickle::Kind;
using pickle::Ref;
using namespace std::string_view_literals;

namespace {

// Builds one Metadata from a finished graph.
class MetadataReader {
 public:
  MetadataReader(const ByteSource& source, const Limits& limits, bool plain)
      : source_(source),
        limits_(limits),
        plain_(plain),
        budget_(source.size(), limits),
        reducer_(budget_, limits, source.size()) {}

  Metadata read();

 private:
  struct Entry {
    Ref name;
    std::uint64_t tensor;  // the reducer's handle, or kBytesEntry
  };
  PodVector<Entry> list_entries(Ref dict);
  void add_name(std::string_view name, PodVector<char>& seen);
  void make_entries(const PodVector<Entry>& entries, std::atomic<std::size_t>& next);
  void read_planner_data(Ref entries, Ref ref);
  bool same_keys(Ref a, Ref b) const;
  bool read_paths(Ref dict, PathMap& paths);
  void read_storage_data(Ref ref);
  bool read_rows(Ref dict);
  void read_storage_meta(Ref ref);
  std::optional<std::string> text_or_none(Ref ref, std::string_view what);
  std::string path_text(Ref object);
  bool has_plain_extra(Ref state);
  void read_plainly();
  bool attribute(Ref state, std::string_view name, Ref& value) const {
    return graph_.find(state, name, value) && value.kind() != Kind::kNone;
  }
  DcpReducer::Class class_of(Ref ref) const {
    if (ref.kind() != Kind::kObject || graph_.callable(ref).kind() != Kind::kGlobal)
      return DcpReducer::kOther;
    return DcpReducer::class_of(graph_.module(graph_.callable(ref)), graph_.name(graph_.callable(ref)));
  }
  pickle::Options options(pickle::Reducer* reducer) {
    return {pickle::Dialect::kMetadata, limits_.metadata_bytes, reducer, plain_, &budget_};
  }

  const ByteSource& source_;
  const Limits& limits_;
  const bool plain_;
  Budget budget_;  // one thread takes from it at a time
  DcpReducer reducer_;
  Graph graph_;
  std::uint32_t last_name_ = ~std::uint32_t{0};
  std::vector<std::pair<std::size_t, Dict>> bytes_extra_;  // by entry
  // Fields that hold something else than DCP puts there.
  bool foreign_planner_ = false;
  bool foreign_storage_ = false;
  bool foreign_extra_ = false;
  Metadata out_;
};

constexpr std::uint64_t kBytesEntry = ~std::uint64_t{0};

constexpr auto kFields = {"state_dict_metadata"sv, "planner_data"sv, "storage_data"sv, "storage_meta"sv,
                          "version"sv};

// Calls f(key, value) for each entry of a dict until it returns false.
template <class F> bool each_entry(const Graph& graph, Ref dict, F&& f) {
  Ref key;
  std::size_t position = 0;
  bool all = true;
  graph.each(dict, [&](Ref element) {
    if (position++ % 2 == 0) {
      key = element;
      return true;
    }
    return all = f(key, element);
  });
  return all;
}

constexpr std::size_t kLarge = 20000;  // entries from which a second thread pays

// No future where there is no thread to be had.
template <class Work> std::future<void> second_thread(Work& work) {
  try {
    return std::async(std::launch::async, std::ref(work));
  } catch (const std::system_error&) {
    return {};
  } catch (const std::bad_alloc&) {
    return {};
  }
}

Metadata MetadataReader::read() {
  graph_ = pickle::read(source_, options(&reducer_), limits_);
  const Ref root = graph_.root();
  if (class_of(root) != DcpReducer::kMetadata) {
    throw Error(ErrorCode::kUnsupported, "the pickle holds something other than DCP's Metadata");
  }
  if (graph_.size(graph_.args(root)) != 0) broken_metadata("Metadata is made with arguments");
  if (!graph_.has_state(root) || graph_.state(root).kind() != Kind::kDict)
    broken_metadata("Metadata without its fields");
  const Ref state = graph_.state(root);

  Ref value;
  if (!graph_.find(state, "state_dict_metadata", value) || value.kind() != Kind::kDict) {
    broken_metadata("Metadata without state_dict_metadata");
  }
  const PodVector<Entry> entries = list_entries(value);
  out_.state_dict_metadata.reserve(entries.size());
  use_huge_pages(out_.state_dict_metadata.data(), entries.size() * sizeof(out_.state_dict_metadata[0]));
  out_.state_dict_metadata.resize(entries.size());
  // What remains is taken by two threads: the paths as one piece, the entries a thousand at a time.
  std::atomic<std::size_t> next = 0;
  const auto paths_and_entries = [&, names = value] {
    Ref planner;
    if (attribute(state, "planner_data", planner)) read_planner_data(names, planner);
    make_entries(entries, next);
  };
  std::future<void> rest;
  if (entries.size() > kLarge) rest = second_thread(paths_and_entries);
  if (rest.valid()) {
    make_entries(entries, next);
    rest.get();
  } else {
    paths_and_entries();
  }
  for (auto& [at, extra] : bytes_extra_)
    std::get<BytesStorageMetadata>(out_.state_dict_metadata[at].second).extra = std::move(extra);
  if (attribute(state, "storage_meta", value)) read_storage_meta(value);
  if (attribute(state, "version", value)) out_.version = text_or_none(value, "version");
  foreign_extra_ = !has_plain_extra(state);
  if (!foreign_extra_) out_.extra = reducer_.extra_of(graph_, state, kFields);
  // Gives the reducer's rows away, with the sizes that anything else may refer to.
  if (attribute(state, "storage_data", value)) read_storage_data(value);
  if (foreign_planner_ || foreign_storage_ || foreign_extra_) read_plainly();
  out_.written_as = reducer_.written_as;
  return std::move(out_);
}

bool is_field(std::string_view name) {
  return std::find(kFields.begin(), kFields.end(), name) != kFields.end();
}

bool MetadataReader::has_plain_extra(Ref state) {
  std::optional<pickle::Survey> survey;  // seldom needed
  return each_entry(graph_, state, [&](Ref key, Ref value) {
    if (key.kind() == Kind::kString && is_field(graph_.text(key))) return true;
    if (!survey) survey.emplace(graph_, budget_, limits_);
    return survey->is_plain(value);
  });
}

// Reads the file again without the reducer, so that what is not DCP's is kept whole.
void MetadataReader::read_plainly() {
  budget_.give_back(graph_.memory());
  graph_ = Graph();
  const Graph plain = pickle::read(source_, options(nullptr), limits_);
  Limits inside = limits_;  // depth counts from the file's root
  inside.depth -= std::min(inside.depth, 1U);
  pickle::Survey survey(plain, budget_, inside);
  each_entry(plain, plain.state(plain.root()), [&](Ref key, Ref value) {
    if (key.kind() != Kind::kString) broken_metadata("an attribute whose name is no string");
    const std::string_view name = plain.text(key);
    const auto keep = [&] { return pickle::to_whole_value(plain, value, survey, budget_, inside); };
    if (foreign_planner_ && name == "planner_data") out_.planner_data = keep();
    if (foreign_storage_ && name == "storage_data") out_.foreign_storage_data = keep();
    if (foreign_extra_ && !is_field(name)) {
      budget_.take(2 * dict_bytes(1) + text_bytes(name));
      if (out_.extra.find(std::string(name)) != nullptr)
        broken_metadata(fmt::format("an object has the attribute '{}' twice", name));
      out_.extra.set(std::string(name), keep());
    }
    return true;
  });
}

// Every name once; `seen` is by its number.
void MetadataReader::add_name(std::string_view name, PodVector<char>& seen) {
  if (name.size() > limits_.name_bytes) {
    throw Error(ErrorCode::kLimit,
                fmt::format("a name of {} bytes, more than {}", name.size(), limits_.name_bytes));
  }
  NameTable& names = reducer_.rows.names;
  // Entries and stored items are often in the same order: then nothing is hashed.
  const std::uint32_t expected = last_name_ + 1;
  const bool in_order = expected < names.size() && names[expected] == name;
  const std::uint32_t number = last_name_ = in_order ? expected : names.intern(name);
  if (number >= seen.size()) seen.resize(std::max<std::size_t>(number + 1, 2 * seen.size()), 0);
  if (seen[number] != 0) broken_metadata(fmt::format("'{}' is in state_dict_metadata twice", name));
  seen[number] = 1;
}

PodVector<MetadataReader::Entry> MetadataReader::list_entries(Ref dict) {
  PodVector<Entry> entries;
  entries.reserve(graph_.size(dict) / 2);
  PodVector<char> seen;
  each_entry(graph_, dict, [&](Ref key, Ref value) {
    if (key.kind() != Kind::kString)
      broken_metadata("an entry of state_dict_metadata whose name is no string");
    add_name(graph_.text(key), seen);
    budget_.take(sizeof(Entry) + sizeof(out_.state_dict_metadata[0]) + text_bytes(graph_.text(key)));
    const Ref tensor = reducer_.tensor_handle(graph_, value);
    if (tensor.kind() == Kind::kHandle) {
      // Two entries may share one object in the pickle; each gets a copy of its own.
      const std::uint64_t at = graph_.handle_index(tensor);
      budget_.take(reducer_.memory_of(at));
      entries.push_back({key, at});
    } else if (class_of(value) == DcpReducer::kBytes) {
      if (graph_.has_state(value)) {
        Dict extra = reducer_.extra_of(graph_, graph_.state(value), {});
        if (!extra.empty()) bytes_extra_.emplace_back(entries.size(), std::move(extra));
      }
      entries.push_back({key, kBytesEntry});
    } else {
      throw Error(ErrorCode::kUnsupported,
                  "an entry that is neither TensorStorageMetadata nor BytesStorageMetadata")
          .of_tensor(std::string(graph_.text(key)));
    }
    return true;
  });
  return entries;
}

// Makes entries until there are none left; `next` is the first that nobody has taken yet.
void MetadataReader::make_entries(const PodVector<Entry>& entries, std::atomic<std::size_t>& next) {
  constexpr std::size_t kPiece = 1024;
  for (;;) {
    const std::size_t first = next.fetch_add(kPiece);
    if (first >= entries.size()) return;
    for (std::size_t i = first; i < std::min(entries.size(), first + kPiece); ++i) {
      auto& [name, stored] = out_.state_dict_metadata[i];
      name = graph_.text(entries[i].name);
      if (entries[i].tensor == kBytesEntry) {
        stored = BytesStorageMetadata{};
      } else {
        stored = reducer_.make_tensor(entries[i].tensor);
      }
    }
  }
}

// Whether two dicts have the same keys in the same order: as nearly always, the very same strings.
bool MetadataReader::same_keys(Ref a, Ref b) const {
  if (graph_.size(a) != graph_.size(b)) return false;
  PodVector<std::uint64_t> keys;
  keys.reserve(graph_.size(a) / 2);
  each_entry(graph_, a, [&](Ref key, Ref) {
    keys.push_back(key.bits);
    return true;
  });
  const std::uint64_t* at = keys.begin();
  return each_entry(graph_, b, [&](Ref key, Ref) { return *at++ == key.bits; });
}

// Python would keep the last of two equal names, a search from the front finds the first.
void refuse_twice(const PathMap& paths) {
  if (const auto twice = find_duplicate(paths.size(), [&](std::size_t i) { return paths.fqn(i); }))
    broken_metadata(fmt::format("'{}' is in planner_data twice", paths.fqn(*twice)));
}

void MetadataReader::read_planner_data(Ref entries, Ref ref) {
  PathMap paths;
  if (ref.kind() == Kind::kDict && read_paths(ref, paths)) {
    if (!same_keys(entries, ref)) refuse_twice(paths);
    out_.planner_data = std::move(paths);
  } else {
    foreign_planner_ = true;
  }
}

bool MetadataReader::read_paths(Ref dict, PathMap& paths) {
  constexpr std::uint64_t kEntryBytes = sizeof(std::uint64_t) + sizeof(std::uint32_t);  // beside its text
  constexpr std::uint64_t kStepBytes = sizeof(std::uint32_t) + sizeof(std::int64_t);
  return each_entry(graph_, dict, [&](Ref key, Ref value) {
    if (key.kind() != Kind::kString || value.kind() != Kind::kTuple) return false;
    budget_.take(graph_.text(key).size() + kEntryBytes);
    paths.begin_entry(graph_.text(key));
    bool plain = true;
    graph_.each(value, [&](Ref step) {
      if (step.kind() == Kind::kString) {
        budget_.take(graph_.text(step).size() + kStepBytes);
        paths.add_step(graph_.text(step));
      } else if (graph_.is_integer(step)) {
        budget_.take(kStepBytes);
        paths.add_step(graph_.integer(step));
      } else {
        plain = false;
      }
      return plain;
    });
    return plain;
  });
}

void MetadataReader::read_storage_data(Ref ref) {
  if (ref.kind() == Kind::kDict && read_rows(ref)) {
    out_.storage_data.table().adopt(std::move(reducer_.rows));
  } else {
    foreign_storage_ = true;
  }
}

// Brings keys and places into the dict's order; nearly always they were met in just that order.
bool MetadataReader::read_rows(Ref dict) {
  StorageRows& rows = reducer_.rows;
  PodVector<std::uint64_t> order;  // key, place, key, place ... once they differ from 0, 0, 1, 1, ...
  std::uint64_t count = 0;
  const bool all = each_entry(graph_, dict, [&](Ref key, Ref value) {
    const Ref index = reducer_.index_handle(graph_, key);
    const Ref place = reducer_.info_handle(graph_, value);
    if (index.kind() != Kind::kHandle || place.kind() != Kind::kHandle) return false;
    const std::uint64_t k = graph_.handle_index(index);
    const std::uint64_t p = graph_.handle_index(place);
    if (order.empty() && (k != count || p != count)) {
      for (std::uint64_t i = 0; i < count; ++i) order.append(std::array<std::uint64_t, 2>{i, i});
    }
    if (!order.empty() || k != count || p != count) order.append(std::array<std::uint64_t, 2>{k, p});
    ++count;
    return true;
  });
  if (!all) return false;
  if (order.empty() && rows.keys.size() == count && rows.places.size() == count) return true;
  if (order.empty()) {
    for (std::uint64_t i = 0; i < count; ++i) order.append(std::array<std::uint64_t, 2>{i, i});
  }
  budget_.take(count, sizeof(order[0]) * 2 + sizeof(rows.keys[0]) + sizeof(rows.places[0]));
  const auto keys = std::exchange(rows.keys, {});
  const auto places = std::exchange(rows.places, {});
  const auto key_extra = std::exchange(rows.key_extra, {});
  const auto place_extra = std::exchange(rows.place_extra, {});
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t k = order[2 * i];
    const std::uint64_t p = order[2 * i + 1];
    if (const auto extra = key_extra.find(k); extra != key_extra.end()) {
      budget_.take(DcpReducer::kExtraNode + heap_bytes(extra->second));
      rows.key_extra[i] = extra->second;
    }
    if (const auto extra = place_extra.find(p); extra != place_extra.end()) {
      budget_.take(DcpReducer::kExtraNode + heap_bytes(extra->second));
      rows.place_extra[i] = extra->second;
    }
    rows.keys.push_back(keys[k]);
    rows.places.push_back(places[p]);
  }
  return true;
}

// A path object is kept as the text of its path.
std::string MetadataReader::path_text(Ref object) {
  std::string path;
  graph_.each(graph_.args(object), [&](Ref part) {
    if (part.kind() != Kind::kString) broken_metadata("a path whose parts are no strings");
    if (!path.empty() && path.back() != '/') path += '/';
    path += graph_.text(part);
    if (path.size() > limits_.string_bytes)
      throw Error(ErrorCode::kLimit, fmt::format("a path of more than {} bytes", limits_.string_bytes));
    return true;
  });
  return path;
}

std::optional<std::string> MetadataReader::text_or_none(Ref ref, std::string_view what) {
  if (ref.kind() == Kind::kNone) return std::nullopt;
  if (ref.kind() == Kind::kString) return std::string(graph_.text(ref));
  if (class_of(ref) == DcpReducer::kPath) return path_text(ref);
  broken_metadata(fmt::format("{} is no string", what));
}

void MetadataReader::read_storage_meta(Ref ref) {
  if (class_of(ref) != DcpReducer::kStorageMeta)
    throw Error(ErrorCode::kUnsupported, "storage_meta of an unknown class");
  StorageMeta meta;
  if (graph_.has_state(ref)) {
    const Ref state = graph_.state(ref);
    if (state.kind() != Kind::kDict) broken_metadata("StorageMeta without its fields");
    Ref value;
    if (graph_.find(state, "checkpoint_id", value)) meta.checkpoint_id = text_or_none(value, "checkpoint_id");
    if (graph_.find(state, "save_id", value)) meta.save_id = text_or_none(value, "save_id");
    if (graph_.find(state, "load_id", value)) meta.load_id = text_or_none(value, "load_id");
    if (attribute(state, "modules", value)) {
      Value modules = reducer_.plain_value(graph_, value);
      if (!modules.is<List>()) broken_metadata("the modules of StorageMeta are no list");
      meta.modules = std::move(modules.get<List>());
      meta.has_modules = true;
    }
    meta.extra = reducer_.extra_of(graph_, state, {"checkpoint_id", "save_id", "load_id", "modules"});
  }
  out_.storage_meta = std::move(meta);
}

Metadata read(const ByteSource& source, const Limits& limits, bool plain) {
  try {
    return MetadataReader(source, limits, plain).read();
  } catch (Error& e) {
    e.in_file(source.name());
    throw;
  }
}

}  // namespace

Metadata read_dcp_metadata(const ByteSource& source, const Limits& limits) {
  return read(source, limits, false);
}

Metadata read_dcp_metadata_plainly(const ByteSource& source, const Limits& limits) {
  return read(source, limits, true);
}

Metadata parse_dcp_metadata(std::string_view bytes, std::string name) {
  return read_dcp_metadata(*memory_source(as_bytes(bytes), std::move(name)));
}

}  // namespace cairn
