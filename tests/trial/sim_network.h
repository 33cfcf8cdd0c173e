// The network of one job: letters between its ranks that are late, lost, doubled, or out of order.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "group/mail.h"
#include "sim_world.h"

namespace cairn::sim {

struct NetworkOptions {
  Time least_delay = std::chrono::microseconds(5);
  Time most_delay = std::chrono::microseconds(50);
  // As sockets and MPI are: what is lost is sent again, and between two ranks nothing overtakes. Otherwise
  // everything a bare network does is seen by the ranks.
  bool keeps_order = true;
  int loss = 0;                 // percent
  int duplicates = 0;           // percent
  bool tells_of_death = false;  // who waits for a rank that has died, or sends to it, hears of it
  bool looks_ahead = true;
  // For a while ranks below `cut_at` and the others do not hear each other.
  int cut_at = 0;
  Time cut_from = kNever;
  Time cut_until = kNever;

  bool is_clean() const { return loss == 0 && cut_from == kNever && keeps_order; }
};

struct Letter {
  Time arrival;
  std::uint64_t step;
  std::string bytes;
};

class Network {
 public:
  Network(World& world, const NetworkOptions& options, int size);

  const NetworkOptions& options() const { return options_; }
  std::uint64_t letters() const { return letters_; }
  std::uint64_t bytes() const { return bytes_; }
  const std::map<std::uint64_t, std::uint64_t>& letters_by_step() const { return by_step_; }

  void send(int from, int to, const Step& step, std::string bytes);
  std::string receive(Process& process, int me, int from, const Step& step);
  std::optional<char> peek(int me, int from, const Step& step);
  void leave(int rank);  // it has died, or is done
  bool is_known_gone(int rank) const;

  // A letter of an earlier job that was under way for long.
  void plant(int from, int to, Letter letter);
  // Keeps a copy of what goes to `rank`, for that.
  void record(int rank) { recorded_ = rank; }
  struct Recorded {
    int from;
    Letter letter;
  };
  const std::vector<Recorded>& recording() const { return recording_; }

 private:
  struct Box {
    std::vector<Letter> letters;  // by arrival
    Time last{0};
  };
  struct Rank {
    std::map<int, Box> boxes;  // by sender
    Fiber* waiting = nullptr;
    int waits_for = -1;
    Time gone_at = kNever;
  };

  Time delay();
  bool is_cut(int from, int to) const;
  Time gone_at(int rank) const;  // when others know
  void deliver(int from, int to, Letter letter);
  Letter* find(Box& box, int from, std::uint64_t step);

  World& world_;
  const NetworkOptions options_;
  std::vector<Rank> ranks_;
  std::uint64_t letters_ = 0;
  std::uint64_t bytes_ = 0;
  std::map<std::uint64_t, std::uint64_t> by_step_;
  int recorded_ = -1;
  std::vector<Recorded> recording_;
};

// How a rank of another make writes its letters: for disagreements that no option can bring about.
using Rewrite = std::function<void(std::string& bytes)>;

std::unique_ptr<Mail> sim_mail(Network& network, Process& process, int rank, Rewrite rewrite = {});

}  // namespace cairn::sim
