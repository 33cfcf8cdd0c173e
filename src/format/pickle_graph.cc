#include <cstring>

#include "cairn/error.h"
#include "format/pickle.h"
#include "format/pickle_layout.h"

namespace cairn::pickle {

// What does not fit into a Ref and has no more than eight bytes has all of them.
bool Graph::is_integer(Ref r) const {
  return r.kind() == Kind::kInt || (r.kind() == Kind::kBigInt && text(r).size() == sizeof(std::int64_t));
}

std::int64_t Graph::integer(Ref r) const {
  return r.kind() == Kind::kInt ? static_cast<std::int64_t>(r.bits) >> 4 : load<std::int64_t>(text(r).data());
}

double Graph::real(Ref r) const { return load<double>(words(r)); }

std::string_view Graph::text(Ref r) const {
  const std::uint64_t* w = words(r);
  return {reinterpret_cast<const char*>(w + 1), static_cast<std::size_t>(w[0])};
}

Ref Graph::payload(Ref r) const { return Ref{words(r)[0]}; }

std::uint32_t Graph::handle_type(Ref r) const { return static_cast<std::uint32_t>(r.bits >> 4 & 255); }

std::uint64_t Graph::handle_index(Ref r) const { return r.bits >> 12; }

std::size_t Graph::size(Ref r) const {
  const std::uint64_t* w = words(r);
  return static_cast<std::size_t>(r.kind() == Kind::kTuple ? w[0] : w[kContainerCount] >> 1);
}

Ref Graph::item(Ref tuple, std::size_t i) const { return Ref{words(tuple)[1 + i]}; }

bool Graph::find(Ref dict, std::string_view key, Ref& value) const {
  bool found = false;
  Ref last_key;
  std::size_t position = 0;
  each(dict, [&](Ref element) {
    if (position++ % 2 == 0) {
      last_key = element;
      return true;
    }
    if (last_key.kind() != Kind::kString || text(last_key) != key) return true;
    // Python would take the last one, but never writes this.
    if (found)
      throw Error(ErrorCode::kCorrupt, "an object has the attribute '" + std::string(key) + "' twice");
    value = element;
    found = true;
    return true;
  });
  return found;
}

bool Graph::is_ordered_dict(Ref dict) const { return (words(dict)[kContainerCount] & kOrderedDict) != 0; }

std::string_view Graph::module(Ref global) const {
  const std::string_view name = text(Ref{globals_[2 * (global.bits >> 4)]});
  if (name == "__builtin__") return "builtins";
  if (name == "copy_reg") return "copyreg";
  return name;
}

std::string_view Graph::name(Ref global) const { return text(Ref{globals_[2 * (global.bits >> 4) + 1]}); }

bool Graph::is_global(Ref r, std::string_view module_name, std::string_view global_name) const {
  return r.kind() == Kind::kGlobal && name(r) == global_name && module(r) == module_name;
}

std::string Graph::full_name(Ref global) const {
  return std::string(module(global)) + "." + std::string(name(global));
}

Ref Graph::callable(Ref object) const { return Ref{words(object)[kObjectCallable]}; }
Ref Graph::args(Ref object) const { return Ref{words(object)[kObjectArgs]}; }
bool Graph::has_state(Ref object) const { return (words(object)[kObjectFlags] & kHasState) != 0; }
Ref Graph::state(Ref object) const { return Ref{words(object)[kObjectState]}; }
Ref Graph::list_items(Ref object) const { return Ref{words(object)[kObjectList]}; }
Ref Graph::dict_items(Ref object) const { return Ref{words(object)[kObjectDict]}; }
bool Graph::is_new(Ref object) const { return (words(object)[kObjectFlags] & kMadeByNew) != 0; }

}  // namespace cairn::pickle
