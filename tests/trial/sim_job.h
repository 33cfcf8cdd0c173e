// A job: ranks, each a process, that save a few times together and then leave.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim_network.h"
#include "sim_states.h"
#include "sim_storage.h"
#include "testing/faulty.h"

namespace cairn::sim {

struct RankPlan {
  Troubles troubles;
  std::vector<Fault> faults;  // of its storage
  Time start{0};
};

struct JobPlan {
  int coordinator = 0;
  std::vector<RankPlan> ranks;
  Shapes shapes;
  NetworkOptions network;
  int saves = 1;
  bool loads = false;     // instead
  int first_version = 1;  // of the first save; to be loaded
  Time deadline = std::chrono::milliseconds(200);
  int files_per_rank = 1;
  bool checksums = true;
  bool durable = true;
  bool keeps_writer = false;  // from save to save
  Odd odd = Odd::kNot;
  int odd_rank = 0;

  int size() const { return static_cast<int>(ranks.size()); }
};

struct Outcome {
  enum class Kind { kNone, kDone, kFailed, kUnheard, kOther };  // kNone: never came to an end, or was dead
  Kind kind = Kind::kNone;
  std::string text;
  std::string step;
  std::optional<ErrorCode> code;
  Time started{0};
  Time ended{0};
  Time stalled{0};  // meanwhile
};

class Job {
 public:
  Job(World& world, Storage& storage, JobPlan plan);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const JobPlan& plan() const { return plan_; }
  Network& network() { return network_; }
  const Process& process(int rank) const { return *processes_[static_cast<std::size_t>(rank)]; }
  const Outcome& outcome(int operation, int rank) const {
    return outcomes_[static_cast<std::size_t>(operation)][static_cast<std::size_t>(rank)];
  }
  int operations() const { return plan_.loads ? 1 : plan_.saves; }
  bool all_done() const;

  // After the world has come to rest: what was promised to the callers.
  void check() const;

 private:
  void run_rank(int rank);
  void run_operation(int operation, int rank, Group& group, StorageWriter& writer);
  void save_once(int version, int rank, Group& group, StorageWriter& writer);
  void load_once(int rank, Group& group, const std::shared_ptr<FileSystem>& files);
  const std::vector<Tensor>& whole(int version);
  std::shared_ptr<FileSystem> files_of(int rank) const;
  std::unique_ptr<StorageWriter> writer_of(int rank) const;
  Rewrite rewrite_of(int rank) const;
  void check_time(const Outcome& outcome, int rank) const;
  void check_same_text(int operation) const;
  bool could_be_told(int rank, const Outcome& outcome) const;

  World& world_;
  Storage& storage_;
  const JobPlan plan_;
  Network network_;
  std::vector<Process*> processes_;
  std::map<int, std::vector<Tensor>> whole_;    // by version
  std::vector<std::vector<Outcome>> outcomes_;  // by operation and rank
};

}  // namespace cairn::sim
