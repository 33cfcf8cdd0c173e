// Where checkpoint bytes live.
//
// A FileSystem is a folder of named files: a directory, or a map in memory. Formats and the engine see only
// this interface; nothing above it calls the OS. All implementations may be used by many threads at once;
// ours pass one suite of tests (src/storage/file_system_test.cc).
//
//   auto files = file_system_of("run/step-1000", {.create = true});
//   auto file = files->create("notes.txt", {.size = text.size()});
//   file->write_at(0, std::as_bytes(std::span(text)));
//   file->commit();            // there now, and safe
//   files->sync_directory();   // and its name too
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/source.h"

namespace cairn {

// Addresses, offsets and lengths that are multiples of this take the shortest way to a disk.
inline constexpr std::size_t kDirectAlignment = 4096;

// A new file, being written.
//
// It appears under its name only when commit() returns; destroying a FileWriter that was not committed leaves
// nothing behind. A process that dies leaves a file whose name is_partial().
class FileWriter {
 public:
  virtual ~FileWriter() = default;

  // Many threads may write at once, each to its own part of the file. The bytes may be reused when it
  // returns. Parts that nobody writes are zeros.
  virtual void write_at(std::uint64_t offset, std::span<const std::byte> bytes) = 0;

  // Whether writes that are multiples of kDirectAlignment in address, offset and length are worth a copy.
  virtual bool prefers_alignment() const { return false; }

  // Whether writes have to come one after the other, each where the one before it ended, as without
  // Capabilities::ranged_writes. What is left out in between is zeros all the same.
  virtual bool appends_only() const { return false; }

  // Whether one long write is better than many short ones: it is sent from where it lies, in pieces that are
  // on their way together.
  virtual bool prefers_long_writes() const { return false; }

  // Fills `to` with what was written there, for who wants to be sure before commit(). False where a file
  // cannot be read before it is there.
  virtual bool read_back(std::uint64_t /*offset*/, std::span<std::byte> /*to*/) { return false; }

  // Makes the file durable, then visible. Call once, last, with no write under way. When it throws, the
  // file is condemned: what it held has to be written again, to a new one. An Error with errno EINPROGRESS:
  // no answer came, and it may still come to be visible.
  virtual void commit() = 0;
};

struct CreateOptions {
  std::uint64_t size = 0;  // how large the file will be, when that is known: reserved up front
  bool replace = false;    // take the place of a file of that name; otherwise commit() is Error(kConflict)
  bool durable = true;     // false: commit() does not wait for the disk
  // What version_of() said of the file that is replaced: when it is another one by now, or gone, commit() is
  // Error(kConflict). Only where capabilities().replace_if_unchanged: Error(kUnsupported) elsewhere.
  std::optional<std::string> expected = {};
  // Nobody looks for this name before commit() has returned: where a file cannot be given its name at the
  // end, in one step and for nothing, it may have it from the beginning.
  bool in_place = false;
};

struct FileEntry {
  enum class Kind : std::uint8_t {
    kFile,
    kFolder,
    kOther,  // has a name and cannot be read: a pipe, a link that leads nowhere or is not followed
  };
  std::string name;
  std::uint64_t size = 0;
  Kind kind = Kind::kFile;
  bool operator==(const FileEntry&) const = default;
};

// A claim that one holder at a time can have. Given back when it is destroyed, and when its process dies;
// those that were forked from it meanwhile have no part in it. May outlive its FileSystem.
class FileLock {
 public:
  virtual ~FileLock() = default;
  // False where nobody is kept out: the file system has no locks, or they end at the machine, so that
  // somebody else holds this one too or may do so. Looks again each time it is asked.
  virtual bool is_exclusive() const = 0;
  // Whether nobody else who is alive holds it now. Where nobody is kept out, who comes later may, and sees
  // what is there already.
  virtual bool is_alone() const { return is_exclusive(); }
  // When this holder was last known to be alive, by the clock that FileSystem::modified() goes by; nullopt
  // where nobody keeps account of it.
  virtual std::optional<std::chrono::system_clock::time_point> renewed() const { return std::nullopt; }
};

// What a kind of storage can do. Whoever stands above it decides by these, and never by the kind.
struct Capabilities {
  bool atomic_rename = false;          // rename() and a commit() that replaces are one step
  bool exclusive_create = false;       // of two that commit one new name, one gets Error(kConflict)
  bool replace_if_unchanged = false;   // CreateOptions::expected: compared and replaced in one step
  bool append = false;                 // a file grows by pieces of any length, from its front to its end
  bool ranged_writes = false;          // and its parts may come in any order, from many threads
  bool locks_across_machines = false;  // lock() keeps others out wherever they run; false: nobody knows
  bool directory_sync = false;         // sync_directory() does what it says; false: there is no such thing
  bool symbolic_links = false;         // a name can be a link to something else
  bool modification_times = false;     // modified() has an answer
  bool operator==(const Capabilities&) const = default;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual Capabilities capabilities() const = 0;
  // What to call the root in a message: a path or a URL.
  virtual const std::string& root() const = 0;
  // Two that have the same one are the same folder, whatever they are called.
  virtual std::string identity() const = 0;

  // A name is one step of a path: not empty, without '/', and not "." or "..".
  virtual std::unique_ptr<FileWriter> create(std::string_view name, const CreateOptions& options = {}) = 0;
  // Also takes relative paths of several steps, as foreign checkpoints have them. Error(kNotFound).
  virtual std::shared_ptr<const ByteSource> open(std::string_view name) const = 0;
  virtual std::optional<FileEntry> stat(std::string_view name) const = 0;
  // Everything that has a name here, by name, partial files too; or in a folder beneath, where links are not
  // followed and which has nothing in it when it is not there. Error(kCorrupt) for a path that leads out.
  virtual std::vector<FileEntry> entries(std::string_view folder = "") const = 0;
  std::vector<FileEntry> list() const;  // the files among them

  // Whether each look and each read takes long, as over a network: few of them then, large and many at once.
  virtual bool is_far() const { return false; }
  // For who reads what nobody is to change meanwhile: this folder with the files that it has now, looked
  // up once where each look takes long. nullptr where it does not. What is open()ed there and
  // has been replaced since is Error(kNotFound) when it is read.
  virtual std::shared_ptr<const FileSystem> as_of_now() const { return nullptr; }

  // A folder right beneath this one, with the same options. Error(kNotFound), unless it is to be made.
  virtual std::unique_ptr<FileSystem> enter(std::string_view folder, bool create = false) const = 0;
  // Removes the folders that were made for this one when it was opened, as far as nothing is in them.
  virtual void remove_made_folders() noexcept {}
  // Tells the file that has this name now from those that had it before or will have it; cheap, and of no
  // other meaning. nullopt when there is none, or when nobody can tell.
  virtual std::optional<std::string> version_of(std::string_view /*name*/) const { return std::nullopt; }
  // When the file was last written, by the clock of whoever keeps it; nullopt as above.
  virtual std::optional<std::chrono::system_clock::time_point> modified(std::string_view /*name*/) const {
    return std::nullopt;
  }

  // In one step: the new name has the old file or the one it had before, at every instant.
  virtual void rename(std::string_view from, std::string_view to) = 0;
  virtual void remove(std::string_view name) = 0;  // Error(kNotFound) when there is none
  // Those of them that are there: all together, where each takes long. Nobody is to replace them meanwhile.
  virtual void remove_all(std::span<const std::string> names);
  // Makes every commit, rename and remove so far survive a loss of power.
  virtual void sync_directory() = 0;

  // Takes the lock of that name, at once or not at all: Error(kConflict) when somebody else holds it, in this
  // process, in another one, or - where the file system knows locks across machines - on another machine. A
  // file system without locks lets everybody have it. It is no file of the checkpoint: list() may show it
  // while it is held, and nothing of it stays behind when it is given back. One whose process died can be
  // taken like any other.
  virtual std::unique_ptr<FileLock> lock(std::string_view name) = 0;

  // Bytes that can still be written; nullopt when nobody knows.
  virtual std::optional<std::uint64_t> free_space() const = 0;
};

// Whether a name is that of a file that was being written when its process died.
bool is_partial(std::string_view name);

// How bytes travel between memory and a disk. kAuto takes what the file system supports, in this order
// backwards. The environment's CAIRN_IO (buffered, direct, uring) decides where the caller leaves kAuto.
enum class IoPath : std::uint8_t {
  kAuto,
  kBuffered,  // pread and pwrite through the page cache
  kDirect,    // past the page cache where address, offset and length are aligned
  kUring,     // the same, many pieces at once through io_uring
};

struct FileSystemOptions {
  bool create = false;  // make the folder, and those above it
  IoPath io = IoPath::kAuto;
  // Files that are symbolic links are read, wherever those lead: a model in the cache of Hugging Face is a
  // directory of links. Only by their bare names.
  bool follow_links = false;
};

// A directory. Error(kNotFound), or kIo with errno. No symbolic link beneath it is followed, unless asked
// for.
std::unique_ptr<FileSystem> posix_file_system(const std::string& path, const FileSystemOptions& options = {});

// Files in memory, gone with the object and those that were entered from it.
std::unique_ptr<FileSystem> memory_file_system();

// The folder that a URL names. Every function here and every command that takes a path takes a URL
// (`cairn bench` only of a disk):
//
//   run/step-1000          a directory
//   file:///data/run       a directory, by its absolute path; %20 is a space
//   memory://name/step-1   a folder in memory, shared by all of this process that say the same name
//   s3://bucket/run        a folder of a bucket (docs/s3.md)
//   https://host/run       a folder of a web server, or http://, to read
//
// Error(kNotFound) when it is not there; Error(kUnsupported), with the known ones, for another scheme. A path
// that looks like a URL is told from one by a "./" before it.
std::unique_ptr<FileSystem> file_system_of(const std::string& url, const FileSystemOptions& options = {});

// What a URL leads to: a folder, a file, or nothing yet.
struct Place {
  // The folder, or the one that the file is in; null when there is nothing.
  std::shared_ptr<FileSystem> files;
  std::string name;  // of the file; empty for a folder
  bool is_folder() const { return files != nullptr && name.empty(); }
  bool is_file() const { return !name.empty(); }
};
Place find_place(const std::string& url, const FileSystemOptions& options = {});

// "run/step-1/model.pt" -> "run/step-1" and "model.pt", whether they are there or not. A bare name is in ".".
struct UrlParts {
  std::string folder;
  std::string name;
};
UrlParts split_url(const std::string& url);

// The path of what is on a disk here; nullopt for other places.
std::optional<std::string> local_path_of(const std::string& url);

}  // namespace cairn
