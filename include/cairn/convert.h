// From one format to another: DCP directories, torch.save files, safetensors files and directories of them.
//
//   convert("run/step-1000", "weights.pt");
//   convert("weights.pt", "run/step-0", {.ranks = 8});
//   ConvertOptions options;
//   options.keys = {"model.*"};
//   options.map = {{"^model\\.", ""}};
//   options.casts = {{"*", DType::kBFloat16}};
//   options.max_shard_size = std::uint64_t{5} << 30;
//   ConvertReport report = convert("run/step-1000", "hub/my-model", options);
//
// The bytes stream: memory stays within the budget whatever the size of the model or of one tensor. The
// source is only read, and what it has of checksums is checked on the way. The destination appears when all
// of it is written, read back and durable; when something fails or the work is cancelled, nothing of it is
// left.
//
// One conversion at a time writes to a destination. convert() may be called by many threads at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cairn/checkpoint.h"
#include "cairn/checkpoint_storage.h"
#include "cairn/limits.h"
#include "cairn/tensor.h"

namespace cairn {

// Every match of the pattern (ECMAScript's regular expressions, without references to its own groups) in a
// name is replaced; in the replacement $1 or \1 is the first group.
struct KeyRule {
  std::string pattern;
  std::string replacement;
};

// Rules from a text: a line is "REGEX -> REPLACEMENT"; empty lines and those that begin with # are for
// people.
std::vector<KeyRule> read_key_rules(const std::string& url);

struct CastRule {
  std::string keys;  // a glob
  DType dtype = DType::kFloat32;
};

struct ConvertOptions {
  // What to write; by default what the destination's name says: *.safetensors, *.pt *.pth *.bin *.ckpt, and
  // for any other name a DCP directory, or one of safetensors files when an option asks for several.
  std::optional<Format> to = std::nullopt;

  // Globs are for the names in the source (glob.h). Nothing in `keys`: everything.
  std::vector<std::string> keys = {};
  std::vector<std::string> exclude = {};
  // Applied to every name, one after the other. An entry whose name changes keeps those steps of its path
  // that are still there; what is new becomes one step.
  std::vector<KeyRule> map = {};
  std::vector<CastRule> casts = {};  // the first that matches; objects are left alone
  bool skip_objects = false;         // leave out what the destination cannot hold; the report says what

  // Directories of safetensors files.
  int shards = 0;  // so many files, of about the same size; 0: as many as max_shard_size asks for
  std::uint64_t max_shard_size = 0;  // bytes of tensors in a file, unless one tensor is larger; 0: 5 GB
  // Which file each tensor goes to, counted from 1, by its name in the destination; each needs one. Files are
  // named after the largest.
  std::map<std::string, int> file_of = {};
  // Of those files, the ones to write: several processes can share the work. With an empty list only the
  // index is written. One of them writes the index, last.
  std::optional<std::vector<int>> only_files = std::nullopt;
  bool index = true;  // write model.safetensors.index.json, last; of several processes, one
  // "__metadata__" of each safetensors file.
  std::vector<std::pair<std::string, std::string>> metadata = {{"format", "pt"}};

  // DCP directories.
  int ranks = 1;                             // as if so many had saved
  int files = 0;                             // of each rank; 0: as a save chooses
  std::vector<std::string> transforms = {};  // of each item: "zstd"
  std::uint64_t max_item_bytes = 0;          // larger tensors are cut; 0: a sixteenth of the budget

  std::uint64_t memory_budget = std::uint64_t{256} << 20;  // at least 16 MiB
  int threads = 0;                                         // 0: as many as cores, at least 4 and at most 16
  // Otherwise a destination that is there is Error(kConflict). Files of a Hugging Face index that is replaced
  // go when the new index is durable.
  bool overwrite = false;
  bool verify = true;    // what was written is read again and compared before it appears
  bool durable = true;   // false: a loss of power may cost the destination
  bool dry_run = false;  // only say what would be written
  Limits limits = {};
  ProgressCallback progress = {};  // phases "convert" and "verify"
  // Another thread may set it: Error(kCancelled) soon, and nothing is left behind.
  const std::atomic<bool>* cancelled = nullptr;
};

struct ConvertedTensor {
  std::string from;  // its name in the source
  std::string name;
  DType from_dtype = DType::kFloat32;
  DType dtype = DType::kFloat32;
  Shape shape;
  std::uint64_t bytes = 0;
  std::string file;  // in the destination; empty for DCP, where a save decides
};

struct ConvertedObject {
  std::string from;
  std::string name;
};

struct ConvertedFile {
  std::string name;
  std::uint64_t bytes = 0;  // 0 in a dry run to DCP, where it is known afterwards only
};

struct ConvertReport {
  Format from = Format::kDcp;
  Format to = Format::kDcp;
  std::vector<ConvertedTensor> tensors;
  std::vector<ConvertedObject> objects;
  std::vector<std::string> dropped;  // objects that the destination cannot hold; with skip_objects only
  std::vector<ConvertedFile> files;
  std::uint64_t bytes = 0;      // of the tensors, as they are in the destination
  std::uint64_t verified = 0;   // bytes of the source that were compared with its checksums
  std::uint64_t read_back = 0;  // bytes of the destination that were read again and compared
};

// Errors name the tensor and the file. kNotFound: no source; kCorrupt: its bytes are not what was written, or
// break its format's rules; kConflict: the destination is there; kUnsupported: something that the destination
// cannot hold; kInvalidArgument: options that make no sense, two entries that get one name.
ConvertReport convert(const std::string& source, const std::string& destination,
                      const ConvertOptions& options = {});

// What a destination of this name is, unless the options say it.
Format format_of_destination(const std::string& destination, const ConvertOptions& options = {});

}  // namespace cairn
