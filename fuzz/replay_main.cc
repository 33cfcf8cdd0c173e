// Runs one fuzz target over files, without libFuzzer.
//
//   replay_X FILE|DIRECTORY...             each file through LLVMFuzzerTestOneInput; a finding ends the run
//   replay_X --verdict FILE|DIRECTORY...   a line a file: name, verdict, milliseconds, peak KiB
//
// A verdict is "ok", an error code's name, or "crash". With --verdict the limits are the defaults (or
// CAIRN_FUZZ_LIMITS) and each file runs in a child process of its own: a crash costs one line, and the
// peak of one file says nothing about the next. Milliseconds are processor time, so that a busy machine
// does not fail a test; a child that runs for a minute is killed.
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

// The most memory this process has had, in KiB. Not getrusage: that one remembers the parent's.
long peak_kib() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line))
    if (line.starts_with("VmHWM:")) return std::strtol(line.c_str() + 6, nullptr, 10);
  return -1;
}

// In the child: judges one file and prints its line.
int judge(const std::string& path) {
  alarm(kDeadlineSeconds);
  std::string text;
  if (!read_file(path, text)) return 1;
  const cairn::Limits limits = cairn::fuzz::limits_from_environment();
  const double start = processor_milliseconds();
  const std::string_view verdict = cairn::fuzz::verdict_of(cairn::as_bytes(text), limits);
  const double milliseconds = processor_milliseconds() - start;
  std::printf("%s\t%.*s\t%.3f\t%ld\n", std::filesystem::path(path).filename().c_str(),
              static_cast<int>(verdict.size()), verdict.data(), milliseconds, peak_kib());
  std::fflush(stdout);
  return 0;
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
