#include "sim_network.h"

#include <algorithm>
#include <utility>

namespace cairn::sim {
namespace {

using std::chrono::milliseconds;

constexpr Time kResend = milliseconds(20);

// By everybody's clock, not by the rank's own.
Time virtual_time(const Fibers& fibers, const Step& step) {
  return fibers.now() + (step.deadline - std::chrono::steady_clock::now());
}

class SimMail final : public Mail {
 public:
  SimMail(Network& network, Process& process, int rank, Rewrite rewrite)
      : network_(network), process_(process), rank_(rank), rewrite_(std::move(rewrite)) {
    process.at_death.emplace_back([this] { network_.leave(rank_); });
  }
  ~SimMail() override {
    process_.at_death.clear();
    if (!process_.is_dead()) network_.leave(rank_);
  }

  void send(int to, std::string bytes, const Step& step) override {
    if (rewrite_) rewrite_(bytes);
    if (!process_.enter("send", bytes, static_cast<std::uint64_t>(to), step.number)) return be_dead();
    if (network_.is_known_gone(to)) fail_gone(to);
    network_.send(rank_, to, step, std::move(bytes));
    if (!process_.leave()) be_dead();
  }

  std::string receive(int from, const Step& step) override {
    if (!process_.enter("receive", "", static_cast<std::uint64_t>(from), step.number)) throw Crashed();
    std::string bytes = network_.receive(process_, rank_, from, step);
    if (!process_.leave()) throw Crashed();
    process_.world().note(&process_, "received", bytes, static_cast<std::uint64_t>(from), step.number);
    return bytes;
  }

  bool looks_ahead() const override { return network_.options().looks_ahead; }
  // The library's watching threads are not made for a process that goes on when it is dead: they are told
  // that all is over, and end.
  std::optional<char> peek(int from, const Step& step) override {
    if (process_.is_dead()) return 'E';
    return network_.peek(rank_, from, step);
  }

 private:
  void be_dead() const {
    if (process_.is_on_main_fiber()) throw Crashed();
  }

  Network& network_;
  Process& process_;
  const int rank_;
  const Rewrite rewrite_;
};

}  // namespace

Network::Network(World& world, const NetworkOptions& options, int size)
    : world_(world), options_(options), ranks_(static_cast<std::size_t>(size)) {}

Time Network::delay() {
  const auto span = static_cast<std::uint64_t>((options_.most_delay - options_.least_delay).count());
  return options_.least_delay + Time(world_.random.below(span + 1));
}

bool Network::is_cut(int from, int to) const {
  const Time now = world_.fibers.now();
  return now >= options_.cut_from && now < options_.cut_until &&
         (from < options_.cut_at) != (to < options_.cut_at);
}

void Network::send(int from, int to, const Step& step, std::string bytes) {
  ++letters_;
  bytes_ += bytes.size();
  ++by_step_[step.number];
  if (to < 0 || to >= static_cast<int>(ranks_.size())) return;  // a rank that only the sender believes in
  Letter letter{world_.fibers.now() + delay(), step.number, std::move(bytes)};
  if (to == recorded_) recording_.push_back({from, letter});
  bool lost = world_.random.chance(options_.loss);
  if (options_.keeps_order) {
    for (; lost; lost = world_.random.chance(options_.loss)) letter.arrival += kResend;
    if (is_cut(from, to)) {
      if (options_.cut_until == kNever) return;
      letter.arrival += options_.cut_until - world_.fibers.now();
    }
    return deliver(from, to, std::move(letter));
  }
  if (world_.random.chance(options_.duplicates)) {
    Letter again = letter;
    again.arrival += delay();
    deliver(from, to, std::move(again));
  }
  if (!lost && !is_cut(from, to)) deliver(from, to, std::move(letter));
}

void Network::deliver(int from, int to, Letter letter) {
  Rank& rank = ranks_[static_cast<std::size_t>(to)];
  Box& box = rank.boxes[from];
  if (options_.keeps_order) letter.arrival = box.last = std::max(box.last, letter.arrival);
  if (rank.waiting != nullptr && rank.waits_for == from) world_.fibers.wake(rank.waiting, letter.arrival);
  const auto after = std::upper_bound(box.letters.begin(), box.letters.end(), letter.arrival,
                                      [](Time time, const Letter& one) { return time < one.arrival; });
  box.letters.insert(after, std::move(letter));
}

void Network::plant(int from, int to, Letter letter) { deliver(from, to, std::move(letter)); }

void Network::leave(int rank) {
  Rank& gone = ranks_[static_cast<std::size_t>(rank)];
  if (gone.waiting != nullptr) world_.fibers.wake(gone.waiting, world_.fibers.now());
  if (!options_.tells_of_death) return;
  gone.gone_at = world_.fibers.now() + delay();
  for (Rank& other : ranks_)
    if (other.waiting != nullptr && other.waits_for == rank) world_.fibers.wake(other.waiting, gone.gone_at);
}

// A rank that nobody started never goes: who has another size of the world in mind waits for it.
Time Network::gone_at(int rank) const {
  const bool is_there = rank >= 0 && rank < static_cast<int>(ranks_.size());
  return is_there ? ranks_[static_cast<std::size_t>(rank)].gone_at : kNever;
}

bool Network::is_known_gone(int rank) const { return gone_at(rank) <= world_.fibers.now(); }

// The letter of this step that has come; drops older ones. Throws when it cannot come any more.
Letter* Network::find(Box& box, int from, std::uint64_t step) {
  const Time now = world_.fibers.now();
  std::erase_if(box.letters, [&](const Letter& one) { return one.arrival <= now && one.step < step; });
  const auto has_come = [&](const Letter& one) { return one.arrival <= now; };
  if (!box.letters.empty() && has_come(box.letters.front()) && options_.keeps_order &&
      box.letters.front().step > step)
    fail_ahead(from, box.letters.front().step);
  for (Letter& one : box.letters)
    if (has_come(one) && one.step == step) return &one;
  if (box.letters.empty() && is_known_gone(from)) fail_gone(from);
  return nullptr;
}

std::string Network::receive(Process& process, int me, int from, const Step& step) {
  Rank& rank = ranks_[static_cast<std::size_t>(me)];
  Box& box = rank.boxes[from];
  for (;;) {
    if (Letter* letter = find(box, from, step.number)) {
      std::string bytes = std::move(letter->bytes);
      box.letters.erase(box.letters.begin() + (letter - box.letters.data()));
      return bytes;
    }
    const Time deadline = virtual_time(world_.fibers, step);
    if (world_.fibers.now() >= deadline) fail_late(from);
    Time until = deadline;
    if (const Time gone = gone_at(from); gone > world_.fibers.now()) until = std::min(until, gone);
    for (const Letter& one : box.letters)
      if (one.arrival > world_.fibers.now()) until = std::min(until, one.arrival);
    rank.waiting = world_.fibers.current();
    rank.waits_for = from;
    world_.fibers.park(until);
    rank.waiting = nullptr;
    if (process.is_dead()) throw Crashed();
  }
}

std::optional<char> Network::peek(int me, int from, const Step& step) {
  const Letter* letter = find(ranks_[static_cast<std::size_t>(me)].boxes[from], from, step.number);
  if (letter == nullptr || letter->bytes.empty()) return std::nullopt;
  return letter->bytes.front();
}

std::unique_ptr<Mail> sim_mail(Network& network, Process& process, int rank, Rewrite rewrite) {
  return std::make_unique<SimMail>(network, process, rank, std::move(rewrite));
}

}  // namespace cairn::sim
