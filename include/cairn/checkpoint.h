// Looking into a checkpoint of any format: what it holds, where it lies, the values themselves.
//
// No ranks, no model code, no Python. Used by the command line, by inference servers that want a few
// tensors, and by tests. A Checkpoint may be read by several threads at once.
//
//   auto ckpt = cairn::Checkpoint::open("run/step-1000");
//   for (const auto& t : ckpt->tensors()) std::cout << t.name << "\n";
//   cairn::Tensor w = ckpt->read("model.w", {{0, 16, 1}});   // the first 16 rows
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/limits.h"
#include "cairn/metadata.h"
#include "cairn/selection.h"
#include "cairn/state_dict.h"
#include "cairn/tensor.h"

namespace cairn {

class FileSystem;

enum class Format {
  kDcp,          // a directory with .metadata and .distcp files
  kTorchFile,    // a torch.save archive (.pt, .pth)
  kSafetensors,  // one .safetensors file
  kHuggingFace,  // a directory of .safetensors files, usually with model.safetensors.index.json
};
std::string_view name_of(Format format);  // "dcp", "torch", "safetensors", "huggingface"

struct TensorSummary {
  std::string_view name;  // lives as long as the Checkpoint
  DType dtype = DType::kFloat32;
  Shape shape;
  std::uint64_t bytes = 0;  // numel x item size
  std::uint32_t chunks = 0;
  std::uint32_t files = 0;  // how many different files its chunks lie in
};

struct ObjectSummary {
  std::string_view name;
  std::uint64_t bytes = 0;  // as stored
};

struct ChunkPlace {
  Box box;
  std::string file;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;  // as stored, with whatever the format wraps around the elements
};

struct FileSummary {
  std::string name;
  std::optional<std::uint64_t> size;  // nullopt: missing
  std::uint64_t needed = 0;           // one past the last byte that is referenced
  bool referenced = false;
};

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  // Finds out what a path or URL leads to and opens it. Reads the directory and metadata only.
  // Error kNotFound: nothing there; kCorrupt: a known format, broken; kUnsupported: no format we know.
  static std::unique_ptr<Checkpoint> open(const std::string& url, const Limits& limits = {});
  // The same for a folder of yours, or for a folder or a single file of that name in it.
  static std::unique_ptr<Checkpoint> open(std::shared_ptr<FileSystem> files, const std::string& name = "",
                                          const Limits& limits = {});

  virtual Format format() const = 0;
  virtual const std::vector<TensorSummary>& tensors() const = 0;  // in stored order
  virtual const std::vector<ObjectSummary>& objects() const = 0;
  virtual std::vector<ChunkPlace> chunks(std::size_t tensor) const = 0;  // by position in tensors()
  // Every file that is part of it or lies beside it.
  virtual std::vector<FileSummary> files() const = 0;
  // Facts for people, in order: ("written by", "torch 2.7 or later"), ("ranks", "2"), ...
  virtual std::vector<std::pair<std::string, std::string>> facts() const = 0;
  // The DCP metadata, for formats that have one; else null.
  virtual const Metadata* metadata() const { return nullptr; }

  // Reads the selected elements into a new contiguous tensor; only the bytes needed, within a small
  // bound. Error kNotFound for an unknown name (with near names), kInvalidArgument for a bad selection.
  Tensor read(std::string_view tensor, const Selection& selection = {}) const;
  virtual Tensor read_at(std::size_t tensor, const Selection& selection) const = 0;
  // The same into memory of the caller's, whose shape is the selection's. Values convert as copy() converts
  // them when its element type is another.
  virtual void read_into(std::size_t tensor, const Selection& selection, const TensorView& to) const = 0;

  // An object's plain value, or an Opaque when it is a class of somebody's own.
  virtual Value object(std::string_view name) const = 0;

  // Position in tensors(); nullopt when there is none of that name.
  std::optional<std::size_t> find_tensor(std::string_view name) const;

 protected:
  Checkpoint();
  // Error kNotFound with near names, or kInvalidArgument when the name is a tensor's.
  [[noreturn]] void fail_to_find_object(std::string_view name) const;

 private:
  // What the format knows about a tensor that is not there ("its file x is missing"); empty: nothing.
  virtual std::string why_missing(std::string_view) const { return ""; }

  struct Names;  // positions by name, made when first asked for
  std::shared_ptr<Names> names_;
};

// The program of a pickle (an Opaque's, say), one line an opcode, for people. Nothing is run and nothing
// fails: at a broken place it says so and stops. At most `max_lines`.
std::string disassemble_pickle(std::string_view pickle, std::size_t max_lines = 200);

}  // namespace cairn
