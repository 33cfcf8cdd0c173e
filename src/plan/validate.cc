#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/name_table.h"
#include "cairn/error.h"
#include "cairn/plan_steps.h"
#include "plan/conflicts.h"
#include "plan/cover_check.h"
#include "plan/item_tables.h"

namespace cairn {
namespace {

using Kind = PlanProblem::Kind;

constexpr std::size_t kMostText = 500;
constexpr std::size_t kMostPerTensor = 16;  // chunks out of bounds that are named one by one

// Compares what each item says of its tensor with what the metadata says, which is the first item's word.
class AgreementCheck {
 public:
  AgreementCheck(const Metadata& metadata, std::vector<PlanProblem>& problems)
      : metadata_(metadata), problems_(problems) {
    for (const auto& [name, stored] : metadata.state_dict_metadata) names_.intern(name);
  }

  void add(const SavePlan& plan, std::size_t rank) {
    const WriteItems::Rows& rows = plan.items.rows();
    if (rows.tables == nullptr) return;
    if (rows.tables.get() != tables_) use(*rows.tables);
    for (const ItemRow& row : rows.rows) {
      const std::uint32_t entry = entry_of(row.name);
      if (entry == kNoEntry) {
        report(Kind::kKind, row, rank, "is written, but the metadata does not name it");
      } else if (row.is_tensor() && agreed_[entry] != row.tensor) {
        compare(row, entry, rank);
      }
    }
  }

 private:
  void use(const ItemTables& tables) {
    tables_ = &tables;
    entries_.clear();
    entries_.resize(tables.names.size(), kUnknown);
    agreed_.clear();
    agreed_.resize(names_.size(), kNoEntry);
  }

  std::uint32_t entry_of(std::uint32_t name) {
    if (entries_[name] == kUnknown) entries_[name] = names_.find(tables_->names[name]).value_or(kNoEntry);
    return entries_[name];
  }

  void compare(const ItemRow& row, std::uint32_t entry, std::size_t rank) {
    const auto* stored = std::get_if<TensorStorageMetadata>(&metadata_.state_dict_metadata[entry].second);
    if (stored == nullptr) return report(Kind::kKind, row, rank, "is a tensor here and an object elsewhere");
    const TensorSpec spec = tables_->spec(row.tensor);
    const Shape size = tables_->dims.shape(spec.size);
    if (spec.dtype != stored->properties.dtype) {
      report(
          Kind::kDType, row, rank,
          fmt::format("is {} here and {} elsewhere", name_of(spec.dtype), name_of(stored->properties.dtype)));
    } else if (size != stored->size) {
      report(
          Kind::kSize, row, rank,
          fmt::format("has global size {} here and {} elsewhere", to_string(size), to_string(stored->size)));
    } else {
      agreed_[entry] = row.tensor;
    }
  }

  void report(Kind kind, const ItemRow& row, std::size_t rank, const std::string& what) {
    problems_.push_back({kind, std::string(tables_->names[row.name]), static_cast<int>(rank), what});
  }

  static constexpr std::uint32_t kUnknown = kNoEntry - 1;
  const Metadata& metadata_;
  std::vector<PlanProblem>& problems_;
  NameTable names_;                     // of the metadata
  const ItemTables* tables_ = nullptr;  // of the plan at hand
  PodVector<std::uint32_t> entries_;    // by name in tables_: which entry of the metadata
  PodVector<std::uint32_t> agreed_;     // by entry: a spec in tables_ that has been compared
};

// The rank that writes chunk `position` of a tensor; only asked for when something is wrong.
std::optional<int> writer_of(const std::vector<SavePlan>& plans, std::string_view fqn, std::size_t position) {
  std::size_t seen = 0;
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    const WriteItems::Rows& rows = plans[rank].items.rows();
    const auto name = rows.tables == nullptr ? std::nullopt : rows.tables->names.find(fqn);
    if (!name) continue;
    for (const ItemRow& row : rows.rows) {
      if (row.name == *name && row.is_tensor() && seen++ == position) return static_cast<int>(rank);
    }
  }
  return std::nullopt;
}

class CoverCheck {
 public:
  CoverCheck(const std::vector<SavePlan>& plans, bool allow_partial, std::vector<PlanProblem>& problems)
      : plans_(plans), allow_partial_(allow_partial), problems_(problems) {}

  void check(const std::string& fqn, const TensorStorageMetadata& stored) {
    if (are_slices_in_order(stored.size, stored.chunks)) return;
    try {
      std::vector<std::size_t> inside;
      if (!find_outside(fqn, stored, inside)) return check_boxes(fqn, stored, stored.chunks, nullptr);
      std::vector<Box> boxes;
      for (const std::size_t i : inside) boxes.push_back(stored.chunks[i]);
      check_boxes(fqn, stored, boxes, &inside);
    } catch (const Error& e) {  // a size that is negative or overflows
      problems_.push_back({Kind::kSize, fqn, std::nullopt, e.message()});
    }
  }

 private:
  // Reports the chunks that are not inside the tensor, and gives the numbers of the others; false when
  // all are inside.
  bool find_outside(const std::string& fqn, const TensorStorageMetadata& stored,
                    std::vector<std::size_t>& inside) {
    const Box whole = Box::whole(stored.size);
    std::size_t outside = 0;
    for (std::size_t i = 0; i < stored.chunks.size(); ++i) {
      const Box& chunk = stored.chunks[i];
      const bool fits = chunk.offsets.rank() == whole.rank() && chunk.sizes.rank() == whole.rank();
      if (fits && whole.contains(chunk)) {
        inside.push_back(i);
      } else if (++outside <= kMostPerTensor) {
        problems_.push_back(
            {Kind::kOutOfBounds, fqn, writer_of(plans_, fqn, i),
             fmt::format("the chunk at {} of sizes {} is out of bounds of {}", to_string(chunk.offsets),
                         to_string(chunk.sizes), to_string(stored.size))});
      }
    }
    if (outside > kMostPerTensor) {
      problems_.push_back({Kind::kOutOfBounds, fqn, std::nullopt,
                           fmt::format("{} more chunks are out of bounds", outside - kMostPerTensor)});
    }
    return outside > 0;
  }

  // `numbers` are the positions of the boxes when some were left out; a gap is then no news.
  void check_boxes(const std::string& fqn, const TensorStorageMetadata& stored, const std::vector<Box>& boxes,
                   const std::vector<std::size_t>* numbers) {
    const auto found = find_cover_problem(stored.size, boxes);
    if (!found) return;
    if (found->kind == CoverProblem::Kind::kHole) {
      if (allow_partial_ || numbers != nullptr) return;
      problems_.push_back({Kind::kHole, fqn, std::nullopt, found->text});
      return;
    }
    const std::size_t second = numbers == nullptr ? found->second : (*numbers)[found->second];
    problems_.push_back({Kind::kOverlap, fqn, writer_of(plans_, fqn, second), found->text});
  }

  const std::vector<SavePlan>& plans_;
  bool allow_partial_;
  std::vector<PlanProblem>& problems_;
};

}  // namespace

std::vector<PlanProblem> validate_global_plan(const std::vector<SavePlan>& plans, const Metadata& metadata,
                                              bool allow_partial) {
  std::vector<PlanProblem> problems;
  AgreementCheck agreement(metadata, problems);
  for (std::size_t rank = 0; rank < plans.size(); ++rank) agreement.add(plans[rank], rank);
  CoverCheck cover(plans, allow_partial, problems);
  for (const auto& [name, stored] : metadata.state_dict_metadata) {
    if (const auto* tensor = std::get_if<TensorStorageMetadata>(&stored)) cover.check(name, *tensor);
  }
  std::stable_sort(problems.begin(), problems.end(),
                   [](const PlanProblem& a, const PlanProblem& b) { return a.fqn < b.fqn; });
  return problems;
}

std::vector<PlanProblem> find_conflicts(const ItemGroups& groups, const ItemTables& tables) {
  std::vector<PlanProblem> problems;
  const auto report = [&](Kind kind, std::uint32_t item, std::string text) {
    problems.push_back({kind, std::string(tables.names[groups.row(item).name]),
                        static_cast<int>(groups.rank_of(item)), std::move(text)});
  };
  for (std::uint32_t group = 0; group < groups.size(); ++group) {
    const auto members = groups[group];
    if (members.size() < 2) continue;
    const ItemRow& first = groups.row(members.front());
    const auto first_rank = groups.rank_of(members.front());
    for (const std::uint32_t item : members.subspan(1)) {
      const ItemRow& row = groups.row(item);
      if (row.chunk_sizes == first.chunk_sizes && row.tensor == first.tensor &&
          row.chunk_offsets == first.chunk_offsets) {
        continue;
      }
      if (!row.is_tensor() || !first.is_tensor()) {
        if (row.is_tensor() != first.is_tensor()) {
          report(Kind::kKind, item,
                 fmt::format("is a tensor or an object, and the other on rank {}", first_rank));
        }
        continue;  // two objects may differ in size: each rank pickles its own
      }
      if (row.chunk_sizes != first.chunk_sizes || row.chunk_offsets != first.chunk_offsets) {
        report(
            Kind::kExtent, item,
            fmt::format("the chunk at {} has sizes {} here and {} on rank {}",
                        to_string(tables.dims.shape(row.offset == kNoEntry ? row.chunk_offsets : row.offset)),
                        to_string(tables.dims.shape(row.chunk_sizes)),
                        to_string(tables.dims.shape(first.chunk_sizes)), first_rank));
        continue;
      }
      const TensorSpec a = tables.spec(first.tensor);
      const TensorSpec b = tables.spec(row.tensor);
      if (a.dtype != b.dtype) {
        report(Kind::kDType, item,
               fmt::format("is {} here and {} on rank {}", name_of(b.dtype), name_of(a.dtype), first_rank));
      } else if (a.size != b.size) {
        report(Kind::kSize, item,
               fmt::format("has global size {} here and {} on rank {}", to_string(tables.dims.shape(b.size)),
                           to_string(tables.dims.shape(a.size)), first_rank));
      }
    }
  }
  return problems;
}

std::vector<PlanProblem> find_conflicts(const std::vector<SavePlan>& all) {
  std::vector<SavePlan> joined = all;
  const auto tables = join_tables(joined);
  return find_conflicts(ItemGroups(joined), *tables);
}

std::string to_string(const std::vector<PlanProblem>& problems) {
  std::string text;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    const PlanProblem& problem = problems[i];
    const std::string where = problem.rank ? fmt::format(" (rank {})", *problem.rank) : "";
    const std::string line =
        i > 0 && problems[i - 1].fqn == problem.fqn
            ? fmt::format(", {}{}", problem.text, where)
            : fmt::format("{}'{}'{}: {}", i == 0 ? "" : "; ", problem.fqn, where, problem.text);
    if (!text.empty() && text.size() + line.size() > kMostText) {
      return fmt::format("{}; and {} more", text, problems.size() - i);
    }
    text += line.substr(0, kMostText);
  }
  return text;
}

void require_valid(const std::vector<PlanProblem>& problems) {
  if (problems.empty()) return;
  Error error(ErrorCode::kInvalidArgument, "Failed to validate global plan: " + to_string(problems));
  error.of_tensor(problems.front().fqn);
  if (problems.front().rank) error.on_rank(*problems.front().rank);
  throw error;
}

}  // namespace cairn
