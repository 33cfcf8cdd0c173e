#include "testing/mount.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace cairn {

std::string why_no_mounts() {
  const int fd = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (fd < 0) return std::string("/dev/fuse cannot be opened: ") + std::strerror(errno);
  ::close(fd);
  return {};
}

CrippledMount::CrippledMount(const std::string& folder, const std::vector<const char*>& switches) {
#ifdef CAIRN_CRIPPLED_MOUNT
  const auto device = [&] {
    struct stat status;
    if (::stat(path().c_str(), &status) != 0) throw std::runtime_error("cannot look at " + path());
    return status.st_dev;
  };
  const dev_t before = device();
  std::vector<const char*> arguments = {CAIRN_CRIPPLED_MOUNT, folder.c_str(), path().c_str()};
  arguments.insert(arguments.end(), switches.begin(), switches.end());
  arguments.push_back(nullptr);
  process_ = ::fork();
  if (process_ == 0) {
    const int nowhere = ::open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; ++fd) ::dup2(nowhere, fd);
    ::execv(arguments[0], const_cast<char**>(arguments.data()));
    ::_exit(127);
  }
  while (device() == before) {
    if (::waitpid(process_, nullptr, WNOHANG) != 0)
      throw std::runtime_error(std::string(CAIRN_CRIPPLED_MOUNT) + " cannot mount " + path());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
#else
  static_cast<void>(folder), static_cast<void>(switches);
  throw std::runtime_error("built without libfuse3, and /dev/fuse opens");
#endif
}

// With whatever is still open in it.
CrippledMount::~CrippledMount() {
  ::umount2(path().c_str(), MNT_DETACH);
  if (process_ > 0) ::waitpid(process_, nullptr, 0);
}

}  // namespace cairn
