// Everything that happened to a directory, in order: what a loss of power leaves can be made from it.
//
//   Recorder recorder(directory);
//   {
//     const OsWatch watch(directory, recorder);
//     save(state, directory + "/step-1");
//     recorder.report();                    // from here on the save must survive
//   }
//   const Trace trace = recorder.finish();
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cairn/storage.h"
#include "os_calls.h"

namespace cairn::trial {

// A file or directory, whatever its names are. 0 is the directory under trial.
using FileId = std::uint32_t;

using FileBytes = std::shared_ptr<const std::string>;

// Directories and files, as they are on a disk. A file that no directory names may be among them.
struct Tree {
  std::map<FileId, std::map<std::string, FileId>> directories = {{0, {}}};
  std::map<FileId, FileBytes> files;

  // The files in the directory of this path ("" is the whole tree's), by name; null when there is none.
  std::unique_ptr<std::map<std::string, FileBytes>> list(const std::string& path) const;
  // The contents of a file; null when there is none.
  FileBytes find(const std::string& path) const;
};

bool same_names_and_bytes(const Tree& a, const Tree& b);
Tree read_tree(const std::string& directory);
void write_tree(const Tree& tree, const std::string& directory);  // which is made
// The files of one directory of the tree; empty when it is not there.
std::shared_ptr<FileSystem> in_memory(const Tree& tree, const std::string& path);

struct TraceStep {
  enum class Kind : std::uint8_t {
    kCreate,  // a file or a directory
    kWrite,
    kTruncate,
    kAllocate,  // the file has at least this size
    kSync,      // of a file's data, or of a directory's names
    kRename,
    kLink,
    kUnlink,
    kReported,  // somebody was told that all is done
  };
  Kind kind = Kind::kReported;
  FileId file = 0;       // that is written or synced, or that gets or loses a name
  FileId directory = 0;  // of the name
  std::string name = {};
  FileId to_directory = 0;  // of the new name, of kRename and kLink
  std::string to_name = {};
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  FileBytes bytes = {};
};

// "write 512 bytes at 0 of 3", for people.
std::string to_string(const TraceStep& step);

// Carries a step out as the system did. Steps may be left out: a rename without the creation before it.
void apply(Tree& tree, const TraceStep& step);

struct Trace {
  Tree before;
  std::vector<TraceStep> steps;
};

// Lets every call pass, one at a time, and notes those that succeed and change something.
class Recorder final : public OsWatcher {
 public:
  explicit Recorder(std::string directory);
  OsResult on(const OsRequest& request, const OsProceed& proceed) override;

  // Success was reported to the caller. Only the first time counts.
  void report();

  // Throws when the trace does not lead to what the directory holds now: a call went by unseen.
  Trace finish();

 private:
  struct Place {
    FileId directory = 0;
    std::string name;
  };
  Place place_of(const std::string& path) const;
  FileId file_at(const Place& place) const;  // 0: none
  FileId file_of(int fd) const;
  void add(TraceStep step);
  void note(const OsRequest& request, const OsResult& result);
  void note_open(const OsRequest& request, int fd);
  void note_create(const Place& place, bool is_directory);
  void know(FileId file, const std::string& path);

  std::string directory_;
  std::mutex mutex_;
  Trace trace_;
  Tree now_;
  std::map<std::uint64_t, FileId> ids_;  // by inode number
  FileId last_ = 0;
  bool reported_ = false;
  std::string broken_;  // what could not be understood
};

}  // namespace cairn::trial
