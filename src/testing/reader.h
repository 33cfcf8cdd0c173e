// Small checkpoints to be read, and the states they fill.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "cairn/cairn.h"
#include "testing/dcp.h"

namespace cairn {

// Fills `state` from the checkpoint, alone.
inline ReadReport read(const std::shared_ptr<const FileSystem>& files, StateDict& state,
                       const ReadOptions& options = {}) {
  ReadReport report;
  const auto reader = dcp_reader(files, options);
  const Metadata& metadata = reader->set_up_storage_reader(reader->fetch_description(), {});
  DefaultLoadPlanner planner;
  planner.set_up_planner(state, &metadata, true);
  reader->read_data(planner.finish_plan(planner.create_local_plan()), planner, report);
  return report;
}

inline Tensor filled(DType dtype, const Shape& shape, unsigned seed = 1) {
  Tensor tensor = Tensor::empty(dtype, shape);
  std::mt19937 random(seed);
  std::uint32_t four = 0;  // bytes that are not drawn yet
  std::size_t drawn = 0;
  for (std::byte& b : tensor.bytes()) {
    four = drawn++ % 4 == 0 ? static_cast<std::uint32_t>(random()) : four >> 8U;
    b = static_cast<std::byte>(four & 0x3fU);
  }
  return tensor;
}

inline bool equal(const Tensor& a, const Tensor& b) {
  return a.bytes().size() == b.bytes().size() &&
         (a.bytes().empty() || std::memcmp(a.bytes().data(), b.bytes().data(), a.bytes().size()) == 0);
}

inline StateDict state_of(const std::string& name, const Value& value) {
  StateDict state;
  state.set(name, value);
  return state;
}

// Two small tensors in two files, one cut in two, and an object.
inline DcpFiles small_checkpoint(bool manifest = true) {
  DcpFiles files;
  files.with_manifest = manifest;
  files.tensor("w", {4, 4});
  files.chunk("w", {{0, 0}, {2, 4}}, "__0_0.distcp", arange({2, 4}));
  files.chunk("w", {{2, 0}, {2, 4}}, "__1_0.distcp", arange({2, 4}, 8));
  files.whole("b", "__1_0.distcp", arange({3}, 100));
  files.object("step", "__0_0.distcp", 7);
  return files;
}

inline StateDict small_state() {
  StateDict state;
  state.set("w", Value(Tensor::zeros(DType::kFloat32, {4, 4})));
  state.set("b", Value(Tensor::zeros(DType::kFloat32, {3})));
  state.set("step", Value(0));
  return state;
}

inline bool is_right(const StateDict& state) {
  return floats(state.find("w")->get<Tensor>()) == floats(arange({16})) &&
         floats(state.find("b")->get<Tensor>()) == floats(arange({3}, 100)) &&
         *state.find("step") == Value(7);
}

}  // namespace cairn
