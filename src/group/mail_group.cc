#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <exception>
#include <utility>

#include "base/wire_bytes.h"
#include "cairn/error.h"
#include "group/mail.h"

namespace cairn {
namespace {

constexpr auto kMoment = std::chrono::milliseconds(500);  // enough for bytes that are on their way

// The last byte of what goes down the tree of a broadcast: it is the root's, or says why it did not come.
constexpr char kWhole = '.';
constexpr char kLost = '!';

std::string lost(const Error& error, int above) {
  const bool late = error.code() == ErrorCode::kTimeout;
  return fmt::format("{}{}{}", late ? 'l' : 'g', error.rank().value_or(above), kLost);
}

[[noreturn]] void fail_lost(std::string_view news, int above, int size) {
  int rank = above;
  if (!news.empty()) std::from_chars(news.data() + 1, news.data() + news.size(), rank);
  if (rank < 0 || rank >= size) rank = above;
  if (news.starts_with('l')) fail_late(rank);
  fail_gone(rank);
}

class MailGroup final : public Group {
 public:
  MailGroup(std::unique_ptr<Mail> mail, int rank, int size)
      : mail_(std::move(mail)), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::vector<std::string> gather(std::string mine, int root, const Step& step) override {
    check_root(root);
    if (rank_ != root) {
      mail_->send(root, std::move(mine), step);
      return {};
    }
    std::vector<std::string> all(static_cast<std::size_t>(size_));
    all[static_cast<std::size_t>(rank_)] = std::move(mine);
    // Also after a failure, for a moment: a rank whose bytes nobody takes would wait with them until the
    // deadline. But one that has nothing to say any more must not keep the others from hearing of the
    // failure.
    std::exception_ptr failure;
    Step waiting = step;
    const auto fail = [&] {
      failure = std::current_exception();
      waiting.deadline = std::min(step.deadline, Step::in(kMoment));
    };
    try {
      mail_->await_all(step);
    } catch (const Error&) {
      fail();
    }
    for (int from = 0; from < size_; ++from) {
      try {
        if (from != rank_) all[static_cast<std::size_t>(from)] = mail_->receive(from, waiting);
      } catch (const Error&) {
        if (!failure) fail();
      }
    }
    if (failure) std::rethrow_exception(failure);
    return all;
  }

  std::string scatter(std::vector<std::string> all, int root, const Step& step) override {
    check_root(root);
    if (rank_ != root) return mail_->receive(root, step);
    if (all.size() != static_cast<std::size_t>(size_)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} byte strings to scatter over {} ranks", all.size(), size_));
    }
    std::exception_ptr failure;
    for (int to = 0; to < size_; ++to)
      if (to != rank_) try_send(to, std::move(all[static_cast<std::size_t>(to)]), step, failure);
    if (failure) std::rethrow_exception(failure);
    return std::move(all[static_cast<std::size_t>(rank_)]);
  }

  // A binomial tree, counted from the root: rank r gets it from r without its lowest bit, and hands it to
  // r + every smaller power of two. Those below a rank that gets nothing hear at once whom it has waited for.
  std::string broadcast(std::string bytes, int root, const Step& step) override {
    check_root(root);
    const int me = (rank_ - root + size_) % size_;
    int reach = 1;
    while (reach < size_ && (me & reach) == 0) reach *= 2;
    std::exception_ptr failure, unheard;
    if (me == 0) bytes.push_back(kWhole);
    if (me != 0) bytes = receive_whole((me - reach + root) % size_, step, unheard);
    for (int hop = reach / 2; hop > 0; hop /= 2)
      if (me + hop < size_) try_send((me + hop + root) % size_, bytes, step, failure);
    if (unheard) std::rethrow_exception(unheard);
    // Who only hands it on has what it wanted.
    if (failure && me == 0) std::rethrow_exception(failure);
    bytes.pop_back();
    return bytes;
  }

  std::vector<std::string> all_gather(std::string mine, const Step& step) override {
    const std::vector<std::string> all = gather(std::move(mine), 0, step);
    std::vector<std::string> parts = unpack(broadcast(rank_ == 0 ? pack(all) : std::string(), 0, step));
    if (parts.size() != static_cast<std::size_t>(size_))
      throw Error(ErrorCode::kCorrupt, "a message of the group is for another number of ranks");
    return parts;
  }

  void barrier(const Step& step) override { all_gather({}, step); }

  bool looks_ahead() const override { return mail_->looks_ahead(); }
  std::optional<char> peek(int from, const Step& step) override { return mail_->peek(from, step); }
  std::shared_ptr<void> stay_alive() override { return mail_->stay_alive(); }
  void hint(int to, char byte, const Step& step) override {
    if (looks_ahead()) mail_->send(to, std::string(1, byte), step);
  }

 private:
  void check_root(int root) const {
    if (root >= 0 && root < size_) return;
    throw Error(ErrorCode::kInvalidArgument, fmt::format("rank {} of a group of {}", root, size_));
  }

  // What comes down the tree, or what is to be handed on instead.
  std::string receive_whole(int above, const Step& step, std::exception_ptr& unheard) {
    try {
      std::string bytes = mail_->receive(above, step);
      if (!bytes.ends_with(kWhole)) fail_lost(bytes, above, size_);
      return bytes;
    } catch (const Error& e) {
      unheard = std::current_exception();
      return lost(e, above);
    }
  }

  // Keeps the first failure: one rank that cannot be reached is no reason to leave the others waiting.
  void try_send(int to, std::string bytes, const Step& step, std::exception_ptr& failure) {
    try {
      mail_->send(to, std::move(bytes), step);
    } catch (const Error&) {
      if (!failure) failure = std::current_exception();
    }
  }

  std::unique_ptr<Mail> mail_;
  int rank_;
  int size_;
};

}  // namespace

std::unique_ptr<Group> group_over(std::unique_ptr<Mail> mail, int rank, int size) {
  return std::make_unique<MailGroup>(std::move(mail), rank, size);
}

void fail_late(int rank) {
  throw Error(ErrorCode::kTimeout, fmt::format("rank {} did not answer before the deadline", rank))
      .on_rank(rank);
}

void fail_ahead(int rank, std::uint64_t their_step) {
  throw Error(ErrorCode::kConflict,
              fmt::format("rank {} is at step {} already: this rank comes too late", rank, their_step))
      .on_rank(rank);
}

void fail_gone(int rank) {
  throw Error(ErrorCode::kCancelled, fmt::format("rank {} has left the group", rank)).on_rank(rank);
}

}  // namespace cairn
