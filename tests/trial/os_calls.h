// What the library asks of the operating system about files, seen and changed on the way.
//
// A program made with add_os_trial (trial.cmake) has the linker send these calls here first; the library is
// the one that users get. A watcher is asked about each call beneath one directory, and makes it, changes it,
// or answers in the system's place:
//
//   class FullDisk : public OsWatcher {
//     OsResult on(const OsRequest& request, const OsProceed& proceed) override {
//       return request.call == OsCall::kWrite ? OsResult::failure(ENOSPC) : proceed();
//     }
//   };
//   FullDisk disk;
//   const OsWatch watch(directory, disk);   // until the end of the block
//   save(state, directory + "/step-1");
//
// Not seen: io_uring (set CAIRN_IO=buffered or direct), and what shared libraries do on their own
// (std::filesystem, mkostemp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>

namespace cairn::trial {

enum class OsCall : std::uint8_t {
  kOpen,
  kRead,
  kWrite,
  kTruncate,
  kAllocate,
  kSync,  // of a file's data, of a file, of a directory
  kRename,
  kLink,
  kUnlink,
  kMakeDirectory,
  kStat,  // of a file, a name, or the file system
  kList,
  kLock,
  kClose,
};

struct OsRequest {
  OsCall call = OsCall::kOpen;
  const char* function = "";              // "pwrite"
  std::string path = {};                  // beneath the watched directory, which is "" itself
  std::string target = {};                // the new name of a rename or a link
  int fd = -1;                            // of the open file, if it is one
  int flags = 0;                          // of kOpen
  std::uint64_t offset = 0;               // of kRead, kWrite and kAllocate
  std::uint64_t size = 0;                 // bytes to be read, written or reserved; the length to truncate to
  std::span<const std::byte> bytes = {};  // of kWrite
};

struct OsResult {
  long value = 0;  // as the function returns it; -1: it failed
  int error = 0;   // errno then

  static OsResult failure(int os_error) { return {-1, os_error}; }
  bool ok() const { return value != -1; }
};

// Makes the call, reading or writing no more than `most` bytes.
class OsProceed {
 public:
  using Call = std::function<OsResult(std::size_t most)>;
  explicit OsProceed(const Call& call) : call_(call) {}
  OsResult operator()(std::size_t most = std::numeric_limits<std::size_t>::max()) const {
    return call_(most);
  }

 private:
  const Call& call_;
};

class OsWatcher {
 public:
  virtual ~OsWatcher() = default;
  // Called by any thread, by several at once. What it asks of the system itself is not watched. A file whose
  // closing is refused is closed all the same, as the system does it.
  virtual OsResult on(const OsRequest& request, const OsProceed& proceed) = 0;
};

// Makes a directory if need be and gives its name as OsWatch takes it. From here on the library's calls come
// this way: without another word in CAIRN_IO, files are written through the page cache and not through
// io_uring.
std::string watched_directory(const std::string& directory);

// One at a time in a process. No watched call may be under way at its begin and at its end.
class OsWatch {
 public:
  // `directory` is there, and is named by an absolute path without links: see watched_directory().
  OsWatch(std::string directory, OsWatcher& watcher);
  OsWatch(const OsWatch&) = delete;
  OsWatch& operator=(const OsWatch&) = delete;
  ~OsWatch();
};

}  // namespace cairn::trial
