// Checkpoints as Hugging Face keeps models: directories of safetensors files.
//
// A writer and a reader for save() and load(). Names and headers are those of DCP's HuggingFaceStorageWriter,
// so that it, transformers and everybody else can read what is written here, and the other way round.
//
//   auto files = std::shared_ptr(file_system_of("model", {.create = true}));
//   auto writer = hf_writer(files);
//   save(state, "model", {.writer = writer.get()});             // model-00001-of-00001.safetensors, and an
//   index
//
//   auto model = std::shared_ptr<const FileSystem>(file_system_of("DeepSeek-V3", {.follow_links = true}));
//   auto reader = hf_reader(model, {.dequantize = Dequantize{DType::kBFloat16}});
//   load(state, "DeepSeek-V3", {.group = &group, .reader = reader.get()});
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "cairn/checkpoint_storage.h"
#include "cairn/storage.h"
#include "cairn/tensor.h"

namespace cairn {

// What to do with entries that are no tensors: safetensors cannot hold them.
enum class HfObjects : std::uint8_t {
  kRefuse,  // Error(kUnsupported) that names them
  kSkip,    // they are not saved
};

struct HfWriteOptions {
  // false: one rank has everything, and writes model-XXXXX-of-NNNNN.safetensors with an index. true: every
  // rank writes its parts, shard-RRRRR-model-XXXXX-of-NNNNN.safetensors, and there is no index.
  bool sharded = false;
  // Which file each tensor goes to, counted from 1; empty: all to the first. Error(kNotFound) for a tensor
  // that is not in it.
  std::map<std::string, int> file_of = {};
  HfObjects objects = HfObjects::kRefuse;
  // memory_budget, durable, low_space, bytes_per_second and devices mean the same here; the rest nothing.
  WriteOptions write = {};
};

// Until the save is finished, its files have names that no reader takes for safetensors. Then they get their
// own, in the place of older ones, and the index comes last. Several parts of one tensor on one rank are
// joined where they make up a box; parts that do not, and only `sharded` has, go to files of their own, with
// the numbers of ranks that are not there.
std::unique_ptr<StorageWriter> hf_writer(std::shared_ptr<FileSystem> files,
                                         const HfWriteOptions& options = {});

// Weights in few bits become floats while they are read: "X.weight" beside "X.weight_scale_inv" (a scale for
// each square of `block` x `block` elements) and "X_blocks" beside "X_scales" (MXFP4; the numbers of the last
// two dimensions are one dimension then). The result is what torch's arithmetic gives, bit for bit.
struct Dequantize {
  DType to = DType::kFloat32;  // or kBFloat16, kFloat16
  std::int64_t block = 128;
};

struct HfReadOptions {
  std::optional<Dequantize> dequantize = {};
  ReadOptions read = {};  // there are no checksums, so nothing is verified
};

// The tensors of a directory: of the files that its index names; without an index, of the shards that DCP
// wrote; without those, of all its safetensors files. Parts are put together by DCP_SHARDING_INFO. Objects
// there are none.
std::unique_ptr<StorageReader> hf_reader(std::shared_ptr<const FileSystem> files,
                                         const HfReadOptions& options = {});

class Group;

struct ConsolidateOptions {
  // Which file each tensor goes to, counted from 1; those that are not named are left out. Empty: all to one.
  std::map<std::string, int> file_of = {};
  Group* group = nullptr;  // the ranks that share the work, file by file; null: this process alone
  int threads = 0;         // 0: as many as cores
  std::uint64_t memory_budget = std::uint64_t{256} << 20;
  bool durable = true;
  std::chrono::nanoseconds deadline = std::chrono::minutes(30);
  ProgressCallback progress = {};  // of this rank's files
};

// Whole tensors out of the shards that a sharded save wrote: `destination` gets model-XXXXX-of-NNNNN files,
// and the index last. Bytes stream from file to file, read back and compared; no tensor is in memory as a
// whole. All ranks of the group call it and fail together; then no new file stays. Errors name tensor and
// file: kNotFound for a tensor that no shard has, kUnsupported for files without DCP_SHARDING_INFO.
void consolidate(const std::string& sharded, const std::string& destination,
                 const ConsolidateOptions& options = {});

}  // namespace cairn
