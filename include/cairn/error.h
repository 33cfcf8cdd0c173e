// What can go wrong, as data.
//
// Everything in cairn that fails throws cairn::Error (or CheckpointError, when several ranks were at
// work). An Error says what kind of failure it is (code), what happened (message), and where: the
// tensor, the file, the byte offset, the rank. what() is all of that in one line.
//
//   try {
//     auto checkpoint = cairn::Checkpoint::open("run/step-1000");
//   } catch (const cairn::Error& e) {
//     if (e.code() == cairn::ErrorCode::kNotFound) start_from_scratch();
//     else throw;
//   }
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace cairn {

enum class ErrorCode {
  kNotFound,         // no such file, tensor or key
  kCorrupt,          // bytes that break their format's rules, or a wrong checksum
  kUnsupported,      // well-formed, but not something we can read or write
  kInvalidArgument,  // the caller asked for something that makes no sense
  kIo,               // the operating system refused: see os_error()
  kLimit,            // larger or deeper than Limits allows
  kCancelled,        // the caller, or Ctrl-C, stopped the work
  kTimeout,          // a deadline passed
  kConflict,         // somebody else holds or has replaced what we were writing
  kInternal,         // a bug in cairn
};

// The code's name as scripts see it: "not_found", "corrupt", ...
std::string_view name_of(ErrorCode code);

// One failure. The setters return *this, so an error is built where it is thrown and enriched on the
// way up by whoever knows more:
//
//   throw Error(ErrorCode::kCorrupt, "header is longer than the file").at(8);
//   ...
//   catch (Error& e) { e.in_file(path); throw; }
//
// A setter never overwrites what a deeper level has already said.
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message);

  Error& in_file(std::string_view path);
  Error& at(std::uint64_t byte_offset);
  Error& of_tensor(std::string_view name);
  Error& on_rank(int rank);
  Error& while_doing(std::string_view action);
  Error& with_errno(int os_error);
  // What the caller's own code threw, in its own encoding: it travels between ranks as it is.
  Error& with_cause(std::string_view encoded);

  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& file() const { return file_; }
  const std::string& tensor() const { return tensor_; }
  const std::string& doing() const { return doing_; }
  std::optional<std::uint64_t> offset() const { return offset_; }
  std::optional<int> rank() const { return rank_; }
  int os_error() const { return os_error_; }
  const std::string& cause() const { return cause_; }

  // "file: tensor 'w': at byte 8: header is longer than the file (corrupt)"
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  void render();

  ErrorCode code_;
  std::string message_;
  std::string file_;
  std::string tensor_;
  std::string doing_;
  std::string cause_;
  std::optional<std::uint64_t> offset_;
  std::optional<int> rank_;
  int os_error_ = 0;
  std::string what_;
};

// A step that several ranks took together failed on at least one of them. Every rank throws the same
// CheckpointError: the failures of all ranks, keyed by rank.
class CheckpointError : public Error {
 public:
  CheckpointError(std::string_view step, std::map<int, Error> failures);

  const std::string& step() const { return step_; }  // "plan", "write", "read", ...
  const std::map<int, Error>& failures() const { return failures_; }

 private:
  std::string step_;
  std::map<int, Error> failures_;
};

}  // namespace cairn
