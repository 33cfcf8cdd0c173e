// Letters over MPI.
//
// A letter is a head of fixed size (its step, its length, and the first bytes), then the rest in pieces that
// an int can count. Between two ranks letters arrive in the order they were sent. A receiver that gave up in
// the middle of one knows how many bytes of it are still to come and drops them first.
#include "cairn/mpi_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "base/bytes.h"
#include "cairn/error.h"
#include "group/mail.h"

namespace cairn {
namespace {

constexpr int kHeadTag = 1;
constexpr int kRestTag = 2;
constexpr std::size_t kPiece = std::size_t{1} << 29;
constexpr std::size_t kInHead = 4080;

struct Head {
  std::uint64_t step;
  std::uint64_t size;
  char first[kInHead];
};
static_assert(sizeof(Head) == 4096);

void check(int status, const char* what) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw Error(ErrorCode::kIo,
              fmt::format("{}: {}", what, std::string_view(text, static_cast<std::size_t>(length))));
}

// Asks until the answer is yes; false at the deadline. Quick answers come at once, slow ones cost no
// processor.
template <class Ask> bool poll(Ask&& ask, const Step& step) {
  auto pause = std::chrono::microseconds(0);
  for (int tries = 0;; ++tries) {
    if (ask()) return true;
    if (std::chrono::steady_clock::now() >= step.deadline) return false;
    if (tries < 100) {
      std::this_thread::yield();
      continue;
    }
    pause = std::min<std::chrono::microseconds>(pause + std::chrono::microseconds(20),
                                                std::chrono::milliseconds(2));
    std::this_thread::sleep_for(pause);
  }
}

bool done(MPI_Request& request) {
  int flag = 0;
  check(MPI_Test(&request, &flag, MPI_STATUS_IGNORE), "cannot ask for a message");
  return flag != 0;
}

class MpiMail final : public Mail {
 public:
  explicit MpiMail(MPI_Comm own) : own_(own) {
    int level = 0;
    MPI_Query_thread(&level);
    from_any_thread_ = level == MPI_THREAD_MULTIPLE;
  }
  ~MpiMail() override {
    reap();
    // Letters nobody took: MPI may still read their memory, so it is never given back.
    if (!unfinished_->empty()) (void)unfinished_.release();
    int finalized = 0;
    MPI_Finalized(&finalized);
    // Freeing is collective and would wait for a rank that is gone.
    if (finalized == 0 && !broken_) MPI_Comm_free(&own_);
  }

  void send(int to, std::string bytes, const Step& step) override {
    reap();
    Outgoing& letter = unfinished_->emplace_back();
    letter.head = std::make_unique<Head>();
    letter.head->step = step.number;
    letter.head->size = bytes.size();
    std::memcpy(letter.head->first, bytes.data(), std::min(bytes.size(), kInHead));
    letter.bytes = std::move(bytes);
    const int head_bytes = static_cast<int>(offsetof(Head, first) + std::min(letter.bytes.size(), kInHead));
    start(letter, letter.head.get(), head_bytes, to, kHeadTag);
    for (std::size_t at = kInHead; at < letter.bytes.size(); at += kPiece) {
      const int size = static_cast<int>(std::min(kPiece, letter.bytes.size() - at));
      start(letter, letter.bytes.data() + at, size, to, kRestTag);
    }
    if (!poll([&] { return finished(letter); }, step)) {
      broken_ = true;
      fail_late(to);
    }
    unfinished_->pop_back();
  }

  std::string receive(int from, const Step& step) override {
    for (;;) {
      drop_owed(from, step);
      if (!ahead_.contains(from)) {
        auto head = std::make_unique<Head>();
        take(from, head.get(), sizeof(Head), kHeadTag, step);
        ahead_[from] = std::move(head);
      }
      const Head& head = *ahead_.at(from);
      if (head.step > step.number) fail_ahead(from, head.step);
      if (head.step == step.number) return open_letter(from, step);
      owed_[from] = head.size > kInHead ? head.size - kInHead : 0;  // of an abandoned step
      ahead_.erase(from);
    }
  }

  // Another thread than the usual one looks ahead.
  bool looks_ahead() const override { return from_any_thread_; }
  std::optional<char> peek(int from, const Step& step) override {
    if (owed_[from] > 0) return std::nullopt;
    if (!ahead_.contains(from)) {
      int is_there = 0;
      check(MPI_Iprobe(from, kHeadTag, own_, &is_there, MPI_STATUS_IGNORE), "cannot look for a message");
      if (is_there == 0) return std::nullopt;
      auto head = std::make_unique<Head>();
      take(from, head.get(), sizeof(Head), kHeadTag, step);
      ahead_[from] = std::move(head);
    }
    const Head& head = *ahead_.at(from);
    if (head.step != step.number || head.size == 0) return std::nullopt;  // receive() sees to it
    return head.first[0];
  }

 private:
  struct Outgoing {
    std::unique_ptr<Head> head;
    std::string bytes;
    std::vector<MPI_Request> requests;
  };

  void start(Outgoing& letter, const void* data, int size, int to, int tag) {
    check(MPI_Isend(data, size, MPI_BYTE, to, tag, own_, &letter.requests.emplace_back()), "cannot send");
  }

  static bool finished(Outgoing& letter) {
    int flag = 0;
    check(MPI_Testall(static_cast<int>(letter.requests.size()), letter.requests.data(), &flag,
                      MPI_STATUSES_IGNORE),
          "cannot ask for a message");
    return flag != 0;
  }

  void reap() {
    std::erase_if(*unfinished_, [](Outgoing& letter) { return finished(letter); });
  }

  void take(int from, void* data, std::size_t size, int tag, const Step& step) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Irecv(data, static_cast<int>(size), MPI_BYTE, from, tag, own_, &request), "cannot receive");
    if (poll([&] { return done(request); }, step)) return;
    // It may have come while it was being taken back.
    MPI_Cancel(&request);
    MPI_Status status;
    check(MPI_Wait(&request, &status), "cannot take back a request");
    int cancelled = 0;
    MPI_Test_cancelled(&status, &cancelled);
    if (cancelled == 0) return;
    broken_ = true;
    fail_late(from);
  }

  std::string open_letter(int from, const Step& step) {
    const std::unique_ptr<Head> head = std::move(ahead_.at(from));
    ahead_.erase(from);
    std::string bytes(head->size, '\0');
    std::memcpy(bytes.data(), head->first, std::min(bytes.size(), kInHead));
    for (std::size_t at = kInHead; at < bytes.size(); at += kPiece) {
      owed_[from] = bytes.size() - at;
      take(from, bytes.data() + at, std::min(kPiece, bytes.size() - at), kRestTag, step);
    }
    owed_[from] = 0;
    return bytes;
  }

  void drop_owed(int from, const Step& step) {
    std::uint64_t& owed = owed_[from];
    std::string nobody;
    while (owed > 0) {
      const std::size_t size = std::min<std::uint64_t>(owed, kPiece);
      nobody.resize(size);
      take(from, nobody.data(), size, kRestTag, step);
      owed -= size;
    }
  }

  MPI_Comm own_;
  bool from_any_thread_ = false;
  bool broken_ = false;
  std::unique_ptr<std::list<Outgoing>> unfinished_ = std::make_unique<std::list<Outgoing>>();
  std::map<int, std::unique_ptr<Head>> ahead_;  // by sender: a head that was read and whose letter was not
  std::map<int, std::uint64_t> owed_;           // by sender: bytes to come of a letter nobody wants
};

}  // namespace

std::unique_ptr<Group> mpi_group(MPI_Comm world, std::chrono::nanoseconds patience) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) throw Error(ErrorCode::kInvalidArgument, "MPI_Init has not been called");
  MPI_Comm own = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Comm_idup(world, &own, &request), "cannot make a communicator");
  if (!poll([&] { return done(request); }, {0, Step::in(patience)})) {
    throw Error(ErrorCode::kTimeout, "not all ranks came to make the group before the deadline");
  }
  check(MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN), "cannot choose how errors come");
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(own, &rank);
  MPI_Comm_size(own, &size);
  return group_over(std::make_unique<MpiMail>(own), rank, size);
}

}  // namespace cairn
