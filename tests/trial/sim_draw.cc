#include "sim_draw.h"

#include <algorithm>

namespace cairn::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

int draw_size(Random& random) {
  const int lot = random.between(0, 99);
  if (lot < 8) return 1;
  if (lot < 70) return random.between(2, 4);
  if (lot < 95) return random.between(5, 8);
  if (lot < 99) return random.between(9, 16);
  return random.between(17, 64);
}

Time draw_time(Random& random, Time most) {
  return Time(random.below(static_cast<std::uint64_t>(most.count()) + 1));
}

NetworkOptions draw_network(Random& random, int size, Time deadline) {
  NetworkOptions network;
  network.tells_of_death = random.chance(50);
  network.looks_ahead = random.chance(70);
  if (random.chance(40)) return network;
  network.most_delay = random.chance(20) ? deadline / 4 : Time(milliseconds(2));
  network.keeps_order = random.chance(50);
  if (random.chance(50)) network.loss = random.between(1, 15);
  if (random.chance(50)) network.duplicates = random.between(1, 30);
  if (random.chance(30)) {
    network.cut_at = random.between(1, std::max(1, size - 1));
    network.cut_from = draw_time(random, milliseconds(4));
    if (random.chance(60)) network.cut_until = network.cut_from + draw_time(random, deadline * 2);
  }
  return network;
}

// A call that a rank comes to, more often than not.
int draw_call(Random& random, bool is_coordinator, int size) {
  return random.between(1, is_coordinator ? 24 + 5 * size : 24);
}

Time draw_hang(Random& random, Time deadline) {
  if (random.chance(30)) return deadline + milliseconds(1500) + draw_time(random, deadline);
  return draw_time(random, deadline * 2);
}

Fault draw_fault(Random& random) {
  Fault fault;
  fault.nth = static_cast<std::uint64_t>(random.between(1, 20));
  fault.os_error = random.chance(50) ? 5 : 28;  // EIO, ENOSPC
  fault.for_ever = random.chance(30);
  fault.halfway = random.chance(20);
  fault.after = !fault.halfway && random.chance(25);
  return fault;
}

void trouble(Random& random, RankPlan& rank, bool is_coordinator, int size, Time deadline) {
  const int call = draw_call(random, is_coordinator, size);
  switch (random.below(6)) {
    case 0:
    case 1:
      rank.troubles.crash_at_call = call;
      rank.troubles.crash_after = random.chance(50);
      break;
    case 2: rank.troubles.crash_at = rank.start + draw_time(random, milliseconds(6)); break;
    case 3:
      rank.troubles.hang_at_call = call;
      rank.troubles.hang = draw_hang(random, deadline);
      break;
    case 4:
      rank.troubles.jump_at_call = call;
      rank.troubles.jump = draw_time(random, deadline * 2);
      break;
    default: rank.faults.push_back(draw_fault(random)); break;
  }
}

void disagree(Random& random, JobPlan& job) {
  job.odd = static_cast<Odd>(random.between(1, 7));
  job.odd_rank = (job.coordinator + random.between(1, job.size() - 1)) % job.size();
  // Everybody has a part of this one, so whoever is odd is odd.
  job.shapes.tensors.front().cut = Shapes::Cut::kRows;
  job.shapes.tensors.front().shape = Shape({2 * job.size(), 2});
}

}  // namespace

JobPlan draw_quiet_job(Random& random, int first_version) {
  JobPlan job;
  job.ranks.resize(static_cast<std::size_t>(random.chance(50) ? 1 : draw_size(random)));
  job.coordinator = random.between(0, job.size() - 1);
  job.shapes = draw_shapes(random);
  job.first_version = first_version;
  job.deadline = milliseconds(600);  // more than the slowest storage needs for a save
  job.durable = random.chance(90);
  job.checksums = random.chance(95);
  return job;
}

JobPlan draw_troubled_job(Random& random, int first_version) {
  JobPlan job;
  job.ranks.resize(static_cast<std::size_t>(draw_size(random)));
  const int size = job.size();
  job.coordinator = random.chance(60) ? 0 : random.between(0, size - 1);
  job.shapes = draw_shapes(random);
  job.first_version = first_version;
  job.saves = random.chance(25) ? 2 : 1;
  job.deadline = milliseconds(random.between(60, 300));
  job.network = draw_network(random, size, job.deadline);
  job.files_per_rank = random.chance(20) ? 2 : 1;
  job.durable = random.chance(90);
  job.checksums = random.chance(90);
  job.keeps_writer = random.chance(50);
  const Time stagger = random.chance(50) ? Time(0) : Time(milliseconds(10));
  for (RankPlan& rank : job.ranks) rank.start = draw_time(random, stagger);
  if (size > 1 && random.chance(10)) {
    disagree(random, job);
    if (random.chance(70)) return job;
  }
  const int troubled = random.chance(10) ? 0 : random.chance(70) ? 1 : random.between(2, 3);
  for (int i = 0; i < troubled; ++i) {
    const int rank = random.chance(35) ? job.coordinator : random.between(0, size - 1);
    trouble(random, job.ranks[static_cast<std::size_t>(rank)], rank == job.coordinator, size, job.deadline);
  }
  return job;
}

JobPlan draw_loading_job(Random& random, const Shapes& shapes, int version) {
  JobPlan job = draw_troubled_job(random, version);
  job.shapes = shapes;
  job.loads = true;
  job.odd = Odd::kNot;
  return job;
}

}  // namespace cairn::sim
