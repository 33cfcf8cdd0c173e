// Every reader of bytes that somebody else may have written, each on a small real file.
#pragma once

#include <any>
#include <functional>
#include <map>
#include <utility>

#include "base/sink.h"
#include "base/source.h"
#include "damage_places.h"
#include "format/dcp_metadata.h"
#include "format/manifest.h"
#include "format/pickle.h"
#include "format/safetensors.h"
#include "format/torch_file.h"
#include "format/zip.h"
#include "operation.h"
#include "plan/wire.h"

namespace cairn {

class Parse final : public Operation {
 public:
  // `parse` gives what it read; `digest` says what that is, so that a success can be told from half of one.
  using Parser = std::function<std::any(const std::string& bytes)>;
  using Digest = std::function<std::string(const std::any& parsed)>;
  Parse(std::string name, std::string bytes, Parser parse, Digest digest)
      : name_(std::move(name)),
        bytes_(std::move(bytes)),
        parse_(std::move(parse)),
        digest_(std::move(digest)) {
    right_ = digest_(parse_(bytes_));
  }

  const std::string& name() const override { return name_; }
  void run() override { parsed_ = parse_(bytes_); }
  void forget() override {
    if (parsed_.has_value()) require(digest_(parsed_) == right_, "it succeeded and read something else");
    parsed_.reset();
  }
  bool is_internal() const override { return true; }

 private:
  const std::string name_, bytes_;
  const Parser parse_;
  const Digest digest_;
  std::string right_;
  std::any parsed_;
};

// `read` makes something of a source's bytes, `say` tells what it made.
template <class Read, class Say>
std::unique_ptr<Operation> parse_of(std::string name, std::string bytes, const Read& read, const Say& say) {
  using T = decltype(read(memory_source({})));
  return std::make_unique<Parse>(
      std::move(name), std::move(bytes),
      [read](const std::string& input) {
        return std::any(std::make_shared<T>(read(memory_source(as_bytes(input)))));
      },
      [say](const std::any& parsed) { return say(*std::any_cast<std::shared_ptr<T>>(parsed)); });
}

inline std::string bytes_in(const DamagePlace& place, std::string_view part_of_name) {
  for (const std::string& name : place.files())
    if (name.find(part_of_name) != name.npos) return place.get(name);
  throw std::runtime_error("no such file");
}

inline std::string torch_file_bytes() {
  StringSink sink;
  StateDict state;
  state.set("w", Value(numbered({3, 5}, 1)));
  state.set("notes", Dict{{"list", Value(List{Value(1), Value(2.5), Value("x")})}});
  write_torch_file(sink, Value(state));
  return sink.text;
}

using Input = std::shared_ptr<const ByteSource>;

inline void add_archive_operations(Operations& all) {
  const std::string archive = torch_file_bytes();
  const ZipReader zip(memory_source(as_bytes(archive)), {});
  all.push_back(parse_of(
      "zip", archive, [](const Input& in) { return ZipReader(in, {}).entries(); },
      [](const std::vector<ZipEntry>& entries) {
        std::string names;
        for (const ZipEntry& entry : entries)
          names += fmt::format("{} {} {}\n", entry.name, entry.size, entry.crc);
        return names;
      }));
  all.push_back(parse_of(
      "torch_file", archive, [](const Input& in) { return TorchFile::open(in)->load(); },
      [](const Value& value) { return to_string(value, 1 << 20); }));
  all.push_back(parse_of(
      "pickle", zip.read(*zip.find("data.pkl"), 1 << 20),
      [](const Input& in) {
        const pickle::Graph graph = pickle::read(*in, {});
        return pickle::to_value(graph, graph.root(), {});
      },
      [](const Value& value) { return to_string(value, 1 << 20); }));
}

inline void add_dcp_operations(Operations& all) {
  const DcpPlace dcp(1);
  all.push_back(parse_of(
      "metadata", bytes_in(dcp, ".metadata"), [](const Input& in) { return read_dcp_metadata(*in); },
      [](const Metadata& metadata) {
        StringSink sink;
        write_dcp_metadata(sink, metadata);
        return sink.text;
      }));
  all.push_back(parse_of(
      "manifest", bytes_in(dcp, ".cairn-manifest."), [](const Input& in) { return read_manifest(*in); },
      [](const Manifest& manifest) {
        return encode_manifest(manifest.save_id, manifest.strong, manifest.files);
      }));
  DefaultSavePlanner planner;
  const StateDict state = trainer_state(0, 1, 1);
  planner.set_up_planner(state, nullptr, true);
  all.push_back(parse_of(
      "plan_wire", encode_local_plan(planner.create_local_plan(), 0, 1),
      [](const Input& in) {
        PlanGather gather(1);
        gather.add(as_bytes(read_all(*in)));
        return gather.take();
      },
      [](const std::vector<SavePlan>& plans) { return encode_local_plan(plans.at(0), 0, 1); }));
}

inline void add_safetensors_operations(Operations& all) {
  ConvertOptions options;
  options.durable = false;
  options.skip_objects = true;
  options.shards = 2;
  const FilePlace place("model", options);
  all.push_back(parse_of(
      "safetensors", bytes_in(place, ".safetensors"),
      [](const Input& in) { return read_safetensors_header(*in); },
      [](const SafetensorsHeader& header) {
        std::vector<SafetensorsEntry> entries = header.tensors;
        return make_safetensors_header(entries, header.metadata);
      }));
  all.push_back(parse_of(
      "index", bytes_in(place, ".json"), [](const Input& in) { return read_safetensors_index(*in); },
      [](const SafetensorsIndex& index) { return write_safetensors_index(index); }));
}

inline void add_parse_operations(Operations& all) {
  add_dcp_operations(all);
  add_archive_operations(all);
  add_safetensors_operations(all);
}

}  // namespace cairn
