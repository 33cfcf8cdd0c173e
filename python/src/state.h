// A nested Python state, cut into entries: what save and load of torch states work on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cairn/metadata.h"
#include "cairn/state_dict.h"
#include "python.h"

namespace cairn::python {

// What the walk through a state asks Python for.
struct Describer {
  // Called with a tensor that is not plain, and its name: (global size, [(offsets, sizes, plain tensor,
  // tensor that only Python can encode, or None), ...]) for the pieces that are here, False when this rank
  // has no part in it, None when it is to be pickled like any object. Of a piece that only Python can encode
  // the plain tensor says no more than dtype and shape.
  nb::object of_tensor;
  nb::object of_object;  // the same for what is no tensor and no plain data; None: pickle them all
};

// The entries of one state on this rank.
//
// The Python objects stay alive as long as this does; it is destroyed with the GIL held. What is only read
// (entries, paths, archives) may be used by any thread without it.
class TorchState {
 public:
  // Cuts `state` by torch's rules, or takes its top level alone.
  TorchState(nb::dict state, Describer describe, bool flatten, FlattenRule rule);

  // The entries as a flat dict, name -> Tensor | ShardedTensor | plain value | None, and their paths.
  const StateDict& flat() const { return flat_; }
  const std::vector<Path>& paths() const { return paths_; }
  bool is_flattened() const { return flatten_; }
  // The same entries with other values: those of a snapshot.
  Flattened entries(const StateDict& values) const;
  // The state as torch 2.3 would have cut it.
  const TorchState& as_before();

  // What only Python can encode, by name. None when the engine can do it.
  const nb::object* object(std::string_view name) const;
  // The same for a piece of a tensor; null when the engine can read the tensor. Error(kUnsupported) for a box
  // that is no piece: such a tensor cannot be cut.
  struct Foreign {
    Shape sizes;
    nb::object tensor;
    std::string archive;  // when it is frozen
  };
  const Foreign* piece(const std::string& name, const Box& box) const;
  bool has_pieces() const { return !pieces_.empty(); }
  // Encodes all of those now, for a save in the background: `encode` gives bytes.
  void freeze(nb::handle encode);
  const std::string* archive(std::string_view name) const;

  // Puts a value where the entry is: into the dict or list that holds it.
  void put(std::string_view name, nb::handle value);
  std::size_t size() const { return paths_.size(); }

 private:
  void walk(nb::handle value, nb::handle parent, nb::handle key);
  void add(nb::handle value, nb::handle parent, nb::handle key);
  void add_entry(Value value, nb::handle parent, nb::handle key);
  bool add_described(nb::handle described, nb::handle parent, nb::handle key);
  bool is_terminal(nb::handle value) const;
  void keep(nb::handle object) { kept_.append(object); }

  struct Place {
    nb::object parent;
    nb::object key;
  };

  nb::dict state_;
  Describer describe_;
  bool flatten_;
  FlattenRule rule_;
  Path path_;  // of the walk
  StateDict flat_;
  std::vector<Path> paths_;
  std::vector<Place> places_;  // of the entries, in order
  std::unordered_map<std::string, std::size_t> positions_;
  std::unordered_map<std::string, nb::object> objects_;
  std::unordered_map<MetadataIndex, Foreign> pieces_;
  std::unordered_set<std::string> cut_by_python_;  // the tensors they are of
  std::unordered_map<std::string, std::string> archives_;
  nb::list kept_;
  std::unique_ptr<TorchState> before_;
};

// Memory that is there, and the same, as long as a state is: of its tensors. What a hook of the caller's
// makes need not be.
class LastingMemory {
 public:
  void add(const std::optional<Tensor>& tensor);
  bool has(const TensorView& tensor) const;

 private:
  std::map<const std::byte*, const std::byte*> parts_;  // begin, end
};

// A plain torch tensor as the engine sees it; nullopt for one that the engine cannot read as it stands
// (sparse, quantised, a subclass, on another device, with lazy bits).
std::optional<Tensor> plain_tensor(nb::handle tensor);
// Whether an object is a torch.Tensor of whatever class.
bool is_tensor(nb::handle object);

// Plain Python data as a Value; nullopt for everything else. Types count exactly. What holds the same things
// again and again, so that it would be far larger written out, is not plain.
std::optional<Value> plain_value(nb::handle object);

}  // namespace cairn::python
