// The four formats behind Checkpoint, one opener each. open.cc decides which.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/directory.h"
#include "base/source.h"
#include "cairn/checkpoint.h"
#include "format/hf_names.h"  // kIndexFile

namespace cairn {

class SourceChecks;

// As Checkpoint::open. With `checks`, what is read of the tensors is compared with the checkpoint's own
// checksums, and its archives stay open from one read to the next: for those who read all of it in parts.
std::unique_ptr<Checkpoint> open_checkpoint(const std::string& path, const Limits& limits,
                                            const std::shared_ptr<SourceChecks>& checks);

inline constexpr std::string_view kMetadataFile = ".metadata";

// `metadata_files`: ".metadata", or every rank's own "__{rank}.metadata".
std::unique_ptr<Checkpoint> open_dcp(std::shared_ptr<const Directory> directory,
                                     const std::vector<std::string>& metadata_files, const Limits& limits,
                                     std::shared_ptr<SourceChecks> checks);

// Errors of these two say which file: the source's name.
std::unique_ptr<Checkpoint> open_torch_checkpoint(std::shared_ptr<const ByteSource> source,
                                                  const Limits& limits, std::shared_ptr<SourceChecks> checks);
std::unique_ptr<Checkpoint> open_safetensors(const std::shared_ptr<const ByteSource>& source,
                                             const Limits& limits);

// The files that the index names, or without an index every *.safetensors file.
std::unique_ptr<Checkpoint> open_hugging_face(std::shared_ptr<const Directory> directory,
                                              const Limits& limits);

// Of a Hugging Face directory: tensors that its index names and no file has, with the file they should be in.
std::vector<std::pair<std::string, std::string>> missing_tensors(const Checkpoint& checkpoint);

// The last step of a path: "a/b.pt" -> "b.pt".
std::string_view base_name(std::string_view path);

}  // namespace cairn
