// Ranks in one process: letter boxes behind one lock.
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

#include "base/crew.h"
#include "base/current_error.h"
#include "cairn/error.h"
#include "group/mail.h"

namespace cairn {
namespace {

struct Letter {
  std::uint64_t step;
  std::string bytes;
};

struct Office {
  explicit Office(int size)
      : ranks(static_cast<std::size_t>(size)), boxes(ranks * ranks), gone(ranks, false), arrived(ranks) {}

  std::deque<Letter>& box(int from, int to) {
    return boxes[static_cast<std::size_t>(from) * ranks + static_cast<std::size_t>(to)];
  }

  const std::size_t ranks;
  std::mutex mutex;
  std::vector<std::deque<Letter>> boxes;  // from, to
  std::vector<bool> gone;
  std::vector<std::condition_variable> arrived;  // by receiver
};

class ThreadMail final : public Mail {
 public:
  ThreadMail(std::shared_ptr<Office> office, int rank) : office_(std::move(office)), rank_(rank) {}
  ~ThreadMail() override {
    const std::lock_guard lock(office_->mutex);
    office_->gone[static_cast<std::size_t>(rank_)] = true;
    for (std::condition_variable& waiting : office_->arrived) waiting.notify_all();
  }

  void send(int to, std::string bytes, const Step& step) override {
    const std::lock_guard lock(office_->mutex);
    office_->box(rank_, to).push_back({step.number, std::move(bytes)});
    office_->arrived[static_cast<std::size_t>(to)].notify_all();
  }

  std::string receive(int from, const Step& step) override {
    std::unique_lock lock(office_->mutex);
    std::deque<Letter>& box = office_->box(from, rank_);
    for (;;) {
      drop_older(box, step);
      if (!box.empty()) break;
      if (office_->gone[static_cast<std::size_t>(from)]) fail_gone(from);
      if (!wait(lock, step) && box.empty()) fail_late(from);
    }
    if (box.front().step > step.number) fail_ahead(from, box.front().step);
    std::string bytes = std::move(box.front().bytes);
    box.pop_front();
    return bytes;
  }

  bool looks_ahead() const override { return true; }
  std::optional<char> peek(int from, const Step& step) override {
    const std::lock_guard lock(office_->mutex);
    std::deque<Letter>& box = office_->box(from, rank_);
    drop_older(box, step);
    if (box.empty() && office_->gone[static_cast<std::size_t>(from)]) fail_gone(from);
    if (box.empty() || box.front().step != step.number || box.front().bytes.empty()) return std::nullopt;
    return box.front().bytes.front();
  }

 private:
  static void drop_older(std::deque<Letter>& box, const Step& step) {
    while (!box.empty() && box.front().step < step.number) box.pop_front();
  }

  // False at the deadline. A deadline at the end of time overflows in wait_until on some clocks.
  bool wait(std::unique_lock<std::mutex>& lock, const Step& step) {
    std::condition_variable& arrived = office_->arrived[static_cast<std::size_t>(rank_)];
    if (step.deadline == std::chrono::steady_clock::time_point::max()) {
      arrived.wait(lock);
      return true;
    }
    return arrived.wait_until(lock, step.deadline) == std::cv_status::no_timeout;
  }

  std::shared_ptr<Office> office_;
  int rank_;
};

// Nobody else is there to send to.
class NoMail final : public Mail {
 public:
  void send(int, std::string, const Step&) override {}
  std::string receive(int, const Step&) override { return {}; }
};

}  // namespace

std::unique_ptr<Group> solo_group() { return group_over(std::make_unique<NoMail>(), 0, 1); }

std::vector<std::unique_ptr<Group>> thread_groups(int size) {
  if (size < 1) throw Error(ErrorCode::kInvalidArgument, "a group has at least one rank");
  const auto office = std::make_shared<Office>(size);
  std::vector<std::unique_ptr<Group>> groups;
  for (int rank = 0; rank < size; ++rank)
    groups.push_back(group_over(std::make_unique<ThreadMail>(office, rank), rank, size));
  return groups;
}

namespace {

void run_threads(int size, const std::function<void(Group&)>& body) {
  std::vector<std::unique_ptr<Group>> groups = thread_groups(size);
  std::vector<std::exception_ptr> failures(groups.size());
  const auto be_rank = [&](std::size_t rank) {
    try {
      body(*groups[rank]);
    } catch (...) {
      failures[rank] = std::current_exception();
    }
    groups[rank].reset();  // the others need not wait for it any more
  };
  std::size_t started = 0;
  Crew crew;
  while (started < groups.size() && crew.add([&be_rank, started] { be_rank(started); })) ++started;
  for (std::size_t rank = started; rank < groups.size(); ++rank) groups[rank].reset();
  crew.join();
  if (started < groups.size())
    throw Error(ErrorCode::kLimit, "the system has no thread for every rank").with_errno(EAGAIN);
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace

void run_ranks(int size, const std::function<void(Group&)>& body) {
  with_typed_errors([&] { run_threads(size, body); });
}

}  // namespace cairn
