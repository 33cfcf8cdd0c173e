// Runs one fuzz target over files, without libFuzzer.
//
//   replay_X FILE|DIRECTORY...             each file through LLVMFuzzerTestOneInput; a finding ends the run
//   replay_X --verdict FILE|DIRECTORY...   a line a file: name, verdict, milliseconds, peak KiB
//
// A verdict is "ok", an error code's name, or "crash". With --verdict the limits are the defaults (or
// CAIRN_FUZZ_LIMITS) and each file runs in a child process of its own: a crash costs one line, and the
// peak of one file says nothing about the next. Milliseconds are processor time, so that a busy machine
// does not fail a test; a child that runs for a minute is killed. A child is confined (confine.h): one that
// asks the system for anything but memory has crashed. The mode "escape" asks, to show that this works.
// Sanitizers cannot report under it: run the file again without --verdict.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "confine.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr unsigned kDeadlineSeconds = 60;

std::vector<std::string> files_of(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path))
      if (entry.is_regular_file()) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool read_file(const std::string& path, std::string& text) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    return false;
  }
  text.assign(std::istreambuf_iterator<char>(in), {});
  return true;
}

double processor_milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

// The most memory this process has had, in KiB, from its /proc/self/status. Not getrusage: that one
// remembers the parent's.
long peak_kib(int status) {
  char text[8192];
  const ssize_t length = read(status, text, sizeof(text));
  const std::string_view all(text, length < 0 ? 0 : static_cast<std::size_t>(length));
  const std::size_t at = all.find("VmHWM:");
  return at == std::string_view::npos ? -1 : std::strtol(all.data() + at + 6, nullptr, 10);
}

// In the child: judges one file and prints its line.
int judge(const std::string& path) {
  alarm(kDeadlineSeconds);
  std::string text;
  if (!read_file(path, text)) return 1;
  const cairn::Limits limits = cairn::fuzz::limits_from_environment();
  const int status = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (!cairn::fuzz::confine()) return 1;
  if (cairn::fuzz::mode_is("escape")) open("/dev/null", O_RDONLY | O_CLOEXEC);
  const double start = processor_milliseconds();
  const std::string_view verdict = cairn::fuzz::verdict_of(cairn::as_bytes(text), limits);
  const double milliseconds = processor_milliseconds() - start;
  char line[1024];
  const int length = std::snprintf(
      line, sizeof(line), "%s\t%.*s\t%.3f\t%ld\n", std::filesystem::path(path).filename().c_str(),
      static_cast<int>(verdict.size()), verdict.data(), milliseconds, peak_kib(status));
  return write(STDOUT_FILENO, line, static_cast<std::size_t>(length)) == length ? 0 : 1;
}

// Returns false when the child did not end by itself.
bool judge_in_child(const std::string& path) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) _exit(judge(path));
  int status = 0;
  if (child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return true;
  std::printf("%s\tcrash\t0\t0\n", std::filesystem::path(path).filename().c_str());
  return false;
}

bool replay(const std::string& path) {
  std::string text;
  if (!read_file(path, text)) return false;
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> paths(argv + 1, argv + argc);
  const bool verdict = !paths.empty() && paths.front() == "--verdict";
  if (verdict) paths.erase(paths.begin());
  if (paths.empty()) {
    std::fprintf(stderr, "usage: %s [--verdict] FILE|DIRECTORY...\n", argv[0]);
    return 2;
  }
  const std::vector<std::string> files = files_of(paths);
  bool good = true;
  for (const std::string& file : files) good &= verdict ? judge_in_child(file) : replay(file);
  if (!verdict) std::printf("replayed %zu files\n", files.size());
  return good ? 0 : 1;
}
