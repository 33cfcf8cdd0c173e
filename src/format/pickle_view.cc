#include "cairn/pickle_view.h"

#include <utility>

#include "base/source.h"
#include "cairn/error.h"
#include "format/pickle.h"

namespace cairn {

struct PickleView::Graph : pickle::Graph {};

namespace {

pickle::Ref ref_of(PickleView::Part part) { return {part.id}; }

std::vector<PickleView::Part> parts_of(const pickle::Graph& graph, pickle::Ref container) {
  std::vector<PickleView::Part> parts;
  parts.reserve(graph.size(container));
  graph.each(container, [&](pickle::Ref item) {
    parts.push_back({item.bits});
    return true;
  });
  return parts;
}

}  // namespace

PickleView::PickleView(std::string_view bytes, const Limits& limits) {
  pickle::Options options;
  options.dialect = pickle::Dialect::kMetadata;
  options.max_bytes = limits.metadata_bytes;
  const auto source = memory_source(as_bytes(bytes), "");
  graph_ = std::make_unique<Graph>(Graph{pickle::read(*source, options, limits)});
}

PickleView::PickleView(PickleView&&) noexcept = default;
PickleView& PickleView::operator=(PickleView&&) noexcept = default;
PickleView::~PickleView() = default;

PickleView::Part PickleView::root() const { return {graph_->root().bits}; }

PickleView::Kind PickleView::kind(Part part) const {
  const pickle::Ref ref = ref_of(part);
  switch (ref.kind()) {
    case pickle::Kind::kNone: return Kind::kNone;
    case pickle::Kind::kTrue: return Kind::kTrue;
    case pickle::Kind::kFalse: return Kind::kFalse;
    case pickle::Kind::kInt: return Kind::kInt;
    case pickle::Kind::kBigInt: return graph_->is_integer(ref) ? Kind::kInt : Kind::kBigInt;
    case pickle::Kind::kFloat: return Kind::kFloat;
    case pickle::Kind::kString: return Kind::kString;
    case pickle::Kind::kBytes: return Kind::kBytes;
    case pickle::Kind::kTuple: return Kind::kTuple;
    case pickle::Kind::kList: return Kind::kList;
    case pickle::Kind::kDict: return graph_->is_ordered_dict(ref) ? Kind::kOrderedDict : Kind::kDict;
    case pickle::Kind::kSet: return Kind::kSet;
    case pickle::Kind::kGlobal: return Kind::kClass;
    case pickle::Kind::kObject: return bytes_of_call(*graph_, ref) ? Kind::kBytes : Kind::kObject;
    case pickle::Kind::kPersid:
    case pickle::Kind::kHandle: break;  // not in this dialect, and nobody to make any
  }
  throw Error(ErrorCode::kInternal, "a pickle with parts of another file");
}

std::int64_t PickleView::integer(Part part) const { return graph_->integer(ref_of(part)); }

double PickleView::real(Part part) const { return graph_->real(ref_of(part)); }

std::string PickleView::text(Part part) const {
  const pickle::Ref ref = ref_of(part);
  if (ref.kind() == pickle::Kind::kObject) return bytes_of_call(*graph_, ref).value();
  return std::string(graph_->text(ref));
}

std::vector<PickleView::Part> PickleView::items(Part part) const { return parts_of(*graph_, ref_of(part)); }

std::string PickleView::module(Part part) const {
  const pickle::Ref ref = ref_of(part);
  return std::string(graph_->module(ref.kind() == pickle::Kind::kObject ? graph_->callable(ref) : ref));
}

std::string PickleView::name(Part part) const {
  const pickle::Ref ref = ref_of(part);
  return std::string(graph_->name(ref.kind() == pickle::Kind::kObject ? graph_->callable(ref) : ref));
}

std::vector<PickleView::Part> PickleView::arguments(Part object) const {
  return parts_of(*graph_, graph_->args(ref_of(object)));
}

bool PickleView::is_called(Part object) const { return !graph_->is_new(ref_of(object)); }

bool PickleView::has_items(Part object) const {
  const pickle::Ref ref = ref_of(object);
  return graph_->list_items(ref).kind() != pickle::Kind::kNone ||
         graph_->dict_items(ref).kind() != pickle::Kind::kNone;
}

std::optional<PickleView::Part> PickleView::state(Part object) const {
  if (!graph_->has_state(ref_of(object))) return std::nullopt;
  return Part{graph_->state(ref_of(object)).bits};
}

}  // namespace cairn
