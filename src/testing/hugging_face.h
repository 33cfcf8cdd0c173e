// Hugging Face directories for tests: saved, loaded and made by hand.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cairn/cairn.h"
#include "cairn/hugging_face.h"
#include "format/safetensors.h"
#include "testing/dcp.h"
#include "testing/states.h"

namespace cairn {

// The tensors of a trainer_state.
inline StateDict model_state(int rank, int ranks, int version, bool by_columns = false) {
  StateDict state = trainer_state(rank, ranks, version, by_columns);
  StateDict tensors;
  tensors.set("model", *state.find(Key("model")));
  tensors.set("optim", *state.find(Key("optim")));
  return tensors;
}

inline std::string safetensors_bytes(const std::vector<std::pair<std::string, Tensor>>& tensors,
                                     const std::vector<std::pair<std::string, std::string>>& metadata = {}) {
  StringSink sink;
  write_safetensors(sink, tensors, metadata);
  return std::move(sink.text);
}

struct HfStorage : testing::Test {
  std::shared_ptr<FileSystem> files = memory_file_system();

  void save_on(int ranks, int version, HfWriteOptions options = {.sharded = true}) {
    run_ranks(ranks, [&](Group& group) {
      const auto writer = hf_writer(files, options);
      save(model_state(group.rank(), ranks, version), "", {.group = &group, .writer = writer.get()});
    });
  }
  void load_on(int ranks, int version, bool by_columns) {
    run_ranks(ranks, [&](Group& group) {
      StateDict state = model_state(group.rank(), ranks, -1, by_columns);
      const auto reader = hf_reader(files);
      load(state, "", {.group = &group, .reader = reader.get()});
      EXPECT_EQ(Value(state), Value(model_state(group.rank(), ranks, version, by_columns)));
    });
  }
  StateDict load_new(const HfReadOptions& options = {}) {
    const auto reader = hf_reader(files, options);
    return load_into_new("", std::nullopt, {.reader = reader.get()});
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const FileEntry& file : files->list()) found.push_back(file.name);
    return found;
  }
  void index(const std::vector<std::pair<std::string, std::string>>& weight_map) {
    put_file(*files, "model.safetensors.index.json", write_safetensors_index({weight_map, 1}));
  }
};

}  // namespace cairn
