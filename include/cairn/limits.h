// How much an untrusted file may ask for.
//
// Every parser takes a Limits. The defaults fit every checkpoint we have seen with a wide margin; raise
// a field for a file that is larger on purpose. No size found in a file reaches an allocator before the
// bytes it describes are known to exist.
#pragma once

#include <cstdint>

namespace cairn {

struct Limits {
  std::uint64_t metadata_bytes = 1ULL << 30;       // a whole .metadata file
  std::uint64_t blob_pickle_bytes = 1ULL << 20;    // data.pkl of one item in a .distcp file
  std::uint64_t torch_pickle_bytes = 64ULL << 20;  // data.pkl of a torch.save file
  std::uint32_t depth = 64;                        // nesting of pickled containers, and of MARKs
  std::uint32_t pickle_stack = 65536;              // values waiting on the stack of a .metadata
  std::uint32_t memo_slack = 1024;                 // how far a memo index may run ahead of the count
  std::uint64_t string_bytes = 64ULL << 10;        // one string in a .metadata file
  std::uint64_t torch_string_bytes = 16ULL << 20;  // one string in a torch.save file (tokenizers are there)
  // An object of a checkpoint: its archive, with transforms undone, and the values that it becomes. Saves
  // keep to it too.
  std::uint64_t object_bytes = 1ULL << 30;
  std::uint32_t object_depth = 1024;       // nesting of an object: more than any value may have
  std::uint64_t name_bytes = 64ULL << 10;  // a tensor's name
  std::uint64_t class_name_bytes = 512;    // a pickled class's module, or its name in there
  std::uint64_t path_bytes = 4096;         // a file path, each component at most 255
  std::uint32_t tensor_rank = 64;
  std::uint64_t blob_zip_entries = 64;    // records of one item's archive
  std::uint64_t zip_entries = 1'000'000;  // records of a torch.save file
  std::uint64_t zip_name_bytes = 512;
  std::uint64_t deflate_ratio = 100;  // uncompressed / compressed, when deflate is allowed
  std::uint64_t safetensors_header_bytes = 100'000'000;
  std::uint64_t safetensors_tensors = 10'000'000;
  std::uint64_t json_bytes = 256ULL << 20;  // index.json
  std::uint32_t json_depth = 16;
  std::uint64_t manifest_bytes = 1ULL << 30;
  // What a pickle unfolds to may take memory_base and memory_per_byte for each byte of the file.
  std::uint64_t memory_base = 16ULL << 20;
  std::uint64_t memory_per_byte = 32;
};

}  // namespace cairn
