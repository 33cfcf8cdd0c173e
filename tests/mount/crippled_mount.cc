// A mount of a folder that lacks what real mounts lack: those of network and cloud file systems.
//
//   crippled_mount FOLDER MOUNT_POINT [SWITCH...]
//
//   no-links              no hard links (EPERM)
//   no-exclusive-rename   renameat2 knows no flags (EINVAL)
//   no-directory-sync     fsync of a directory is EINVAL
//   no-direct             O_DIRECT is EINVAL
//   flock-per-mount       a lock keeps out only those that came through the same mount
//   fail-close            closing a file that was written to is EIO, as when a server is full or gone
//   stale                 a file that was removed while it was open is ESTALE from then on
//
// Two mounts of one folder are two machines. Runs until it is unmounted. What is not crippled is what the
// folder does; nothing is cached, so that each mount sees at once what the other did.
#define FUSE_USE_VERSION 35
#include <dirent.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string>

namespace {

struct Switches {
  bool no_links = false, no_exclusive_rename = false, no_directory_sync = false, no_direct = false;
  bool flock_per_mount = false, fail_close = false, stale = false;
};
Switches switches;
std::string folder;

std::string real(const char* path) { return folder + path; }
// What FUSE wants to hear of a call that says -1 and errno.
template <class Result> int said(Result result) { return result < 0 ? -errno : static_cast<int>(result); }
int descriptor(const fuse_file_info* info) { return static_cast<int>(info->fh); }

int say_if_stale(const fuse_file_info* info) {
  struct stat status;
  if (!switches.stale || info == nullptr || ::fstat(descriptor(info), &status) != 0) return 0;
  return status.st_nlink == 0 ? -ESTALE : 0;
}

int open_real(const char* path, fuse_file_info* info, int flags, mode_t mode = 0) {
  if (switches.no_direct && (flags & O_DIRECT) != 0) return -EINVAL;
  // The buffers of this program are not aligned.
  const int fd = ::open(real(path).c_str(), (flags & ~O_DIRECT) | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0) return -errno;
  info->fh = static_cast<std::uint64_t>(fd);
  return 0;
}

void* init(fuse_conn_info*, fuse_config* config) {
  config->use_ino = 1;
  config->hard_remove = 1;
  config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
  return nullptr;
}

int get_attributes(const char* path, struct stat* status, fuse_file_info* info) {
  if (info == nullptr) return said(::lstat(real(path).c_str(), status));
  if (const int stale = say_if_stale(info); stale != 0) return stale;
  return said(::fstat(descriptor(info), status));
}

int read_link(const char* path, char* to, std::size_t size) {
  const ssize_t length = ::readlink(real(path).c_str(), to, size - 1);
  if (length < 0) return -errno;
  to[length] = '\0';
  return 0;
}

int rename_file(const char* from, const char* to, unsigned flags) {
  if (flags != 0 && switches.no_exclusive_rename) return -EINVAL;
  return said(::syscall(SYS_renameat2, AT_FDCWD, real(from).c_str(), AT_FDCWD, real(to).c_str(), flags));
}

int link_file(const char* from, const char* to) {
  if (switches.no_links) return -EPERM;
  return said(::link(real(from).c_str(), real(to).c_str()));
}

int truncate_file(const char* path, off_t size, fuse_file_info* info) {
  return said(info != nullptr ? ::ftruncate(descriptor(info), size) : ::truncate(real(path).c_str(), size));
}

int read_file(const char*, char* to, std::size_t size, off_t offset, fuse_file_info* info) {
  if (const int stale = say_if_stale(info); stale != 0) return stale;
  return said(::pread(descriptor(info), to, size, offset));
}

int write_file(const char*, const char* from, std::size_t size, off_t offset, fuse_file_info* info) {
  // One that was opened to append is written at its end, whatever the offset says.
  return said(::pwrite(descriptor(info), from, size, offset));
}

int close_file(const char*, fuse_file_info* info) {
  const int mode = ::fcntl(descriptor(info), F_GETFL) & O_ACCMODE;
  struct stat status;
  const bool written = mode != O_RDONLY && ::fstat(descriptor(info), &status) == 0 && status.st_size > 0;
  return switches.fail_close && written ? -EIO : 0;
}

int release_file(const char*, fuse_file_info* info) { return said(::close(descriptor(info))); }

int sync_file(const char*, int data_only, fuse_file_info* info) {
  return said(data_only != 0 ? ::fdatasync(descriptor(info)) : ::fsync(descriptor(info)));
}

int sync_directory(const char* path, int, fuse_file_info*) {
  if (switches.no_directory_sync) return -EINVAL;
  const int fd = ::open(real(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return -errno;
  const int result = said(::fsync(fd));
  ::close(fd);
  return result;
}

int list(const char* path, void* to, fuse_fill_dir_t fill, off_t, fuse_file_info*, fuse_readdir_flags) {
  DIR* const stream = ::opendir(real(path).c_str());
  if (stream == nullptr) return -errno;
  while (const dirent* entry = ::readdir(stream)) fill(to, entry->d_name, nullptr, 0, fuse_fill_dir_flags{});
  ::closedir(stream);
  return 0;
}

int set_times(const char* path, const timespec times[2], fuse_file_info*) {
  return said(::utimensat(AT_FDCWD, real(path).c_str(), times, AT_SYMLINK_NOFOLLOW));
}

int lock_file(const char*, fuse_file_info* info, int operation) {
  return said(::flock(descriptor(info), operation));
}

bool turn_on(const std::string& name) {
  if (name == "no-links") return switches.no_links = true;
  if (name == "no-exclusive-rename") return switches.no_exclusive_rename = true;
  if (name == "no-directory-sync") return switches.no_directory_sync = true;
  if (name == "no-direct") return switches.no_direct = true;
  if (name == "flock-per-mount") return switches.flock_per_mount = true;
  if (name == "fail-close") return switches.fail_close = true;
  if (name == "stale") return switches.stale = true;
  return false;
}

fuse_operations operations() {
  fuse_operations all = {};
  all.init = init;
  all.getattr = get_attributes;
  all.readlink = read_link;
  all.rename = rename_file;
  all.link = link_file;
  all.truncate = truncate_file;
  all.read = read_file;
  all.write = write_file;
  all.flush = close_file;
  all.release = release_file;
  all.fsync = sync_file;
  all.fsyncdir = sync_directory;
  all.readdir = list;
  all.utimens = set_times;
  if (!switches.flock_per_mount) all.flock = lock_file;  // without it the kernel keeps locks, mount by mount
  all.open = [](const char* path, fuse_file_info* info) { return open_real(path, info, info->flags); };
  all.create = [](const char* path, mode_t mode, fuse_file_info* info) {
    return open_real(path, info, info->flags | O_CREAT, mode);
  };
  all.mkdir = [](const char* path, mode_t mode) { return said(::mkdir(real(path).c_str(), mode)); };
  all.rmdir = [](const char* path) { return said(::rmdir(real(path).c_str())); };
  all.unlink = [](const char* path) { return said(::unlink(real(path).c_str())); };
  all.symlink = [](const char* to, const char* path) { return said(::symlink(to, real(path).c_str())); };
  all.chmod = [](const char* path, mode_t mode, fuse_file_info*) {
    return said(::chmod(real(path).c_str(), mode));
  };
  all.statfs = [](const char* path, struct statvfs* status) {
    return said(::statvfs(real(path).c_str(), status));
  };
  all.fallocate = [](const char*, int mode, off_t offset, off_t length, fuse_file_info* info) {
    return said(::fallocate(descriptor(info), mode, offset, length));
  };
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  bool understood = argc >= 3;
  for (int i = 3; i < argc; ++i) understood = turn_on(argv[i]) && understood;
  if (!understood) {
    std::fprintf(stderr, "usage: crippled_mount FOLDER MOUNT_POINT [SWITCH...]\n");
    return 2;
  }
  folder = argv[1];
  std::string program = argv[0], in_front = "-f", point = argv[2];
  char* arguments[] = {program.data(), in_front.data(), point.data(), nullptr};
  const fuse_operations all = operations();
  return fuse_main(3, arguments, &all, nullptr);
}
