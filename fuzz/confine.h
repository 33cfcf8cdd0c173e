// Takes from this process everything but memory, the clock and the files it has open.
//
// Whatever a hostile file makes a parser try after that (open a file, start a program, reach the network)
// ends the process. A new thread is only refused: readers that like one do without. Linux only, as the rest.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <vector>

namespace cairn::fuzz {

inline bool confine() {
  // The sanitizers feel for readable memory with a pipe; a thread is asked for with the last three.
  constexpr unsigned kAllowed[] = {
      __NR_read,         __NR_write,      __NR_mmap,   __NR_munmap,         __NR_mremap,
      __NR_mprotect,     __NR_madvise,    __NR_brk,    __NR_futex,          __NR_sched_yield,
      __NR_exit,         __NR_exit_group, __NR_getpid, __NR_sigaltstack,    __NR_clock_gettime,
      __NR_rt_sigreturn, __NR_pipe2,      __NR_close,  __NR_rt_sigprocmask, __NR_gettid,
      __NR_rt_sigaction,
  };
  constexpr unsigned kRefused[] = {__NR_clone, __NR_clone3};
  const auto statement = [](unsigned code, unsigned value) {
    return sock_filter{static_cast<unsigned short>(code), 0, 0, value};
  };
  std::vector<sock_filter> program = {statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const unsigned call : kAllowed) {
    program.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, 1, call});
    program.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  for (const unsigned call : kRefused) {
    program.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, 1, call});
    program.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN));
  }
  program.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  const sock_fprog whole{static_cast<unsigned short>(program.size()), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole) == 0;
}

}  // namespace cairn::fuzz
