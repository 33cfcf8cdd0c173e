// The ranks of a process group of torch.distributed, over TCP connections of the engine's own.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "cairn/tcp_group.h"
#include "python.h"

namespace cairn::python {

// Made and destroyed with the GIL held; used without it. It waits for nobody who needs the GIL.
class PythonGroup final : public Group {
 public:
  explicit PythonGroup(std::unique_ptr<Group> ranks) : ranks_(std::move(ranks)) {}
  ~PythonGroup() override {
    nb::gil_scoped_release release;
    ranks_.reset();
  }

  int rank() const override { return ranks_->rank(); }
  int size() const override { return ranks_->size(); }
  std::vector<std::string> gather(std::string mine, int root, const Step& step) override {
    return ranks_->gather(std::move(mine), root, step);
  }
  std::string scatter(std::vector<std::string> all, int root, const Step& step) override {
    return ranks_->scatter(std::move(all), root, step);
  }
  std::string broadcast(std::string bytes, int root, const Step& step) override {
    return ranks_->broadcast(std::move(bytes), root, step);
  }
  std::vector<std::string> all_gather(std::string mine, const Step& step) override {
    return ranks_->all_gather(std::move(mine), step);
  }
  void barrier(const Step& step) override { ranks_->barrier(step); }
  bool looks_ahead() const override { return ranks_->looks_ahead(); }
  std::optional<char> peek(int from, const Step& step) override { return ranks_->peek(from, step); }
  void hint(int to, char byte, const Step& step) override { ranks_->hint(to, byte, step); }
  std::shared_ptr<void> stay_alive() override { return ranks_->stay_alive(); }

  // Held, without the GIL, by one save or load at a time: threads that share a group take turns.
  std::mutex& turn() { return turn_; }

 private:
  std::unique_ptr<Group> ranks_;
  std::mutex turn_;
};

// The turn of a save or load, if it has a group.
inline std::unique_lock<std::mutex> turn_of(PythonGroup* group) {
  return group == nullptr ? std::unique_lock<std::mutex>() : std::unique_lock(group->turn());
}

}  // namespace cairn::python
