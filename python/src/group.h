// A Group whose exchanges are made by Python: over the process group of torch.distributed.
#pragma once

#include "cairn/group.h"
#include "python.h"

namespace cairn::python {

// `exchange` is an object with rank, size and the methods gather, scatter, broadcast, all_gather and barrier
// of bytes, each with the seconds it may take last, and with sign_of_life, which is called every `heartbeat`
// seconds (0: never) while this rank is at work (cairn/torch/_group.py). Made and destroyed with the GIL
// held; used without it.
class PythonGroup final : public Group {
 public:
  explicit PythonGroup(nb::object exchange);
  ~PythonGroup() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::vector<std::string> gather(std::string mine, int root, const Step& step) override;
  std::string scatter(std::vector<std::string> all, int root, const Step& step) override;
  std::string broadcast(std::string bytes, int root, const Step& step) override;
  std::vector<std::string> all_gather(std::string mine, const Step& step) override;
  void barrier(const Step& step) override;
  std::shared_ptr<void> stay_alive(std::optional<int> root) override;

 private:
  nb::object exchange_;
  int rank_;
  int size_;
  std::chrono::duration<double> heartbeat_;
};

}  // namespace cairn::python
