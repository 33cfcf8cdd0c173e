// background MODE DIR ...: background saves of one process, for tests/crash/test_background.py.
//
//   save DIR VERSION                 saves in the background and waits
//   end DIR HOW AT_EXIT MIB_A_SECOND saves version 2, slowly, and ends in the middle: HOW is return, exit,
//                                    quick_exit, _exit or wait (for a signal); AT_EXIT is wait or cancel
//   flat DIR                         50 saves: resident KiB, threads and descriptors after each
//   full DIR how                     a save that does not fit; how: checked, unchecked or zstd
//
// Prints what the test needs as JSON lines; a save that fails prints its error and is no failure.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cairn/async.h"
#include "testing/states.h"

namespace {

using namespace cairn;

// Tensors of a MiB.
StateDict state_of(int mib, int version) {
  StateDict state;
  for (int i = 0; i < mib; ++i) state.set(fmt::format("t{}", i), Value(numbered({1 << 18}, version + i)));
  state.set("version", Value(version));
  return state;
}

void print_error(const Error& e) {
  fmt::print("{{\"code\": \"{}\", \"errno\": {}}}\n", name_of(e.code()), e.os_error());
}

void save_once(const std::string& dir, const StateDict& state, const WriteOptions& write = {}) {
  try {
    AsyncSaver saver({.save = {.write = write}});
    saver.async_save(state, dir).wait();
    fmt::print("{{\"code\": null}}\n");
  } catch (const CheckpointError& e) {
    print_error(e.failures().begin()->second);
  } catch (const Error& e) {
    print_error(e);
  }
}

[[noreturn]] void wait_for_signal() {
  for (;;) ::pause();
}

int run_end(const std::string& dir, const std::string& how, const std::string& at_exit, std::uint64_t mib) {
  AsyncOptions options;
  options.at_exit = at_exit == "wait" ? AtExit::kWait : AtExit::kCancel;
  options.save.write.bytes_per_second = mib << 20;
  auto saver = std::make_unique<AsyncSaver>(options);
  const SaveHandle handle = saver->async_save(state_of(16, 2), dir);
  while (handle.progress().written == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  fmt::print("{{\"writing\": true}}\n");
  std::fflush(stdout);
  if (how == "exit") std::exit(0);
  if (how == "quick_exit") std::quick_exit(0);
  if (how == "_exit") ::_exit(0);
  if (how == "wait") wait_for_signal();
  return 0;
}

std::size_t entries_of(const char* directory) {
  const std::filesystem::directory_iterator entries(directory);
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

std::uint64_t resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::strtoull(line.c_str() + 6, nullptr, 10);
  return 0;
}

void run_flat(const std::string& dir) {
  DefaultSavePlanner planner({.enable_plan_caching = true});
  AsyncOptions options;
  options.save.planner = &planner;
  options.save.write.durable = false;
  AsyncSaver saver(options);
  const StateDict state = state_of(32, 1);
  for (int i = 0; i < 50; ++i) {
    saver.async_save(state, dir).wait();
    // The system forgets a thread a moment after it was joined.
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    fmt::print("{{\"kib\": {}, \"threads\": {}, \"files\": {}}}\n", resident_kib(),
               entries_of("/proc/self/task"), entries_of("/proc/self/fd"));
  }
}

void run_full(const std::string& dir, const std::string& how) {
  StateDict state = state_of(32, 2);
  std::mt19937 random(1);  // nothing that could be compressed
  for (const auto& [key, value] : state) {
    if (const auto* tensor = value.get_if<Tensor>()) {
      Tensor same = *tensor;
      for (std::byte& byte : same.bytes()) byte = static_cast<std::byte>(random());
    }
  }
  WriteOptions write;
  if (how != "checked") write.low_space = OnLowSpace::kIgnore;
  if (how == "zstd") write.transforms = {"zstd"};
  save_once(dir, state, write);
}

int run(const std::vector<std::string>& args) {
  const std::string& mode = args[0];
  const std::string& dir = args[1];
  if (mode == "save") {
    save_once(dir, state_of(16, std::atoi(args.at(2).c_str())));
  } else if (mode == "end") {
    return run_end(dir, args.at(2), args.at(3), std::strtoull(args.at(4).c_str(), nullptr, 10));
  } else if (mode == "flat") {
    run_flat(dir);
  } else if (mode == "full") {
    run_full(dir, args.at(2));
  } else {
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& e) {
    fmt::print(stderr, "background: {}\n", e.what());
    return 1;
  }
}
