// torch.save files as a source for load(): one file into a state that is cut over any number of ranks.
//
//   auto reader = torch_save_reader("weights.pt", {.who = FileReads::kCoordinator});
//   load(state, "weights.pt", {.group = &group, .reader = reader.get()});
//
// Only what the ranks ask for is read of the file: no rank ever holds all of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cairn/checkpoint_storage.h"

namespace cairn {

enum class FileReads : std::uint8_t {
  kEveryRank,    // each its own part: for files that all ranks can open
  kCoordinator,  // one rank reads for all and sends them what they want, as DCP's BroadcastingTorchSaveReader
                 // does
};

struct TorchSaveReadOptions {
  FileReads who = FileReads::kEveryRank;
  ReadOptions read = {};
};

// A file of torch.save, or any other single file or directory that Checkpoint::open knows. Names are those
// that flattening the nested state gives; objects come too. The file is opened by those who read it, at the
// load.
std::unique_ptr<StorageReader> torch_save_reader(const std::string& url,
                                                 const TorchSaveReadOptions& options = {});

}  // namespace cairn
