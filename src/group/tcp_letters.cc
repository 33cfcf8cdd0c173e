// Letters and links of the office: what comes over a connection, and what those who wait get.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cairn/error.h"
#include "group/mail.h"
#include "group/tcp_office.h"

namespace cairn {
namespace {

using namespace std::chrono_literals;

// How long one who waits leaves it to the other to connect, so that not both do.
constexpr auto kBeforeDialling = 300ms;

// While it lives, this rank is at work.
class Working {
 public:
  explicit Working(std::atomic<int>& at_work) : at_work_(at_work) { ++at_work_; }
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;
  ~Working() { --at_work_; }

 private:
  std::atomic<int>& at_work_;
};

}  // namespace

bool TcpOffice::on_greeting(Link& link, const char* bytes) {
  Proof proof{};
  switch (link.stage) {
    case Link::Stage::kGuest:
      std::memcpy(&link.hello, bytes, sizeof(link.hello));
      if (!is_good(link.hello, rank_, size_)) return false;
      link.challenge = make_challenge();
      link.say(link.challenge.data(), link.challenge.size());
      link.stage = Link::Stage::kAwaitsProof;
      write(link);
      return true;
    case Link::Stage::kAwaitsChallenge:
      std::memcpy(link.challenge.data(), bytes, link.challenge.size());
      link.stage = Link::Stage::kHeld;
      prove_one(link.peer);
      return true;
    case Link::Stage::kAwaitsProof: {
      std::memcpy(&proof, bytes, sizeof(proof));
      if (proof.proof != proof_of(key_, End::kDialler, link.hello, link.challenge)) return false;
      link.peer = static_cast<int>(link.hello.from);
      const Proof mine{proof_of(key_, End::kListener, link.hello, link.challenge), peer(link.peer).came};
      link.say(&mine, sizeof(mine));
      return open(link, proof);
    }
    case Link::Stage::kAwaitsWelcome:
      std::memcpy(&proof, bytes, sizeof(proof));
      if (proof.proof != proof_of(key_, End::kListener, link.hello, link.challenge)) {
        end(link, ECONNREFUSED);  // a stranger: the rank is not at this address
        return true;
      }
      return open(link, proof);
    default: return false;
  }
}

// The other end is the rank it says it is.
bool TcpOffice::open(Link& link, const Proof& proof) {
  Peer& one = peer(link.peer);
  if (proof.letters > one.posted || one.left) return false;
  link.stage = Link::Stage::kOpen;
  while (!one.to_send.empty() && one.to_send.front()->number <= proof.letters) one.to_send.pop_front();
  one.heard = std::chrono::steady_clock::now();
  one.dialling = 0;
  one.pause = {};
  one.awaited = one.dead = false;
  if (link.is_dialled()) one.good = link.address;
  const SocketAddress there = remote_address(link.socket());
  for (std::size_t i = 0; i < one.addresses.size() && !link.is_dialled(); ++i)
    if (one.addresses[i].is_same_host(there)) one.good = i;
  use(one, &link);
  for (const std::unique_ptr<Link>& other : links_) {
    if (other.get() == &link || other->peer != link.peer || other->ended) continue;
    // Nobody dials who has a connection: those it dialled before have ended, as it knows. One that the other
    // end may have opened meanwhile stays.
    if (other->is_open() && other->is_dialled() == link.is_dialled()) end(*other, 0);
    if (!other->is_open() && other->stage != Link::Stage::kAwaitsWelcome) other->ended = true;
  }
  if (*at_work_ > 0) link.say({FrameKind::kAlive});
  write(link);
  changed_.notify_all();
  return true;
}

// Of the connections that were dialled to one rank, one at a time goes on: the other end opens one of them.
void TcpOffice::prove_one(int rank) {
  const auto find = [&](Link::Stage stage) -> Link* {
    for (const std::unique_ptr<Link>& link : links_)
      if (link->peer == rank && !link->ended && link->stage == stage) return link.get();
    return nullptr;
  };
  Link* const link = find(Link::Stage::kHeld);
  if (link == nullptr || find(Link::Stage::kAwaitsWelcome) != nullptr) return;
  const Proof proof{proof_of(key_, End::kDialler, link->hello, link->challenge), peer(rank).came};
  link->say(&proof, sizeof(proof));
  link->stage = Link::Stage::kAwaitsWelcome;
  write(*link);
}

// Letters go over this one from now on, beginning with the first that may not have come.
void TcpOffice::use(Peer& one, Link* link) {
  one.link = link;
  if (link != nullptr) link->next = one.posted + 1 - one.to_send.size();
}

void TcpOffice::end(Link& link, int error) {
  if (link.ended) return;
  link.ended = true;
  if (link.peer < 0) return;
  Peer& one = peer(link.peer);
  const Time now = std::chrono::steady_clock::now();
  if (!link.is_open()) {
    if (!link.is_dialled()) return;
    dial_ended(one, link.address, error, now);
    if (link.stage == Link::Stage::kAwaitsWelcome) prove_one(link.peer);
    return;
  }
  one.broke = now;
  if (one.link != &link) return;
  const auto other = std::find_if(links_.begin(), links_.end(), [&](const auto& each) {
    return each->peer == link.peer && each->is_open() && !each->ended;
  });
  use(one, other == links_.end() ? nullptr : other->get());
  if (one.link != nullptr) write(*one.link);
  changed_.notify_all();
}

// Also from a thread of the user's: the other one then finds out that the link has ended, or has more.
void TcpOffice::write(Link& link) {
  if (!link.write(*this)) end(link, errno);
}

std::shared_ptr<const OutLetter> TcpOffice::next_letter(Link& link) {
  if (!link.is_open()) return nullptr;
  Peer& one = peer(link.peer);
  if (one.link != &link || one.to_send.empty()) return nullptr;
  const std::uint64_t first = one.to_send.front()->number;
  link.next = std::max(link.next, first);
  if (link.next - first >= one.to_send.size()) return nullptr;
  return one.to_send[link.next++ - first];
}

bool TcpOffice::on_frame(Link& link, const Frame& frame) {
  Peer& one = peer(link.peer);
  switch (frame.kind) {
    case FrameKind::kAlive: return true;
    case FrameKind::kHave:
      if (frame.number > one.posted) return false;
      while (!one.to_send.empty() && one.to_send.front()->number <= frame.number) one.to_send.pop_front();
      linger(one.heard);
      return true;
    case FrameKind::kBye:
      one.left = true;
      one.to_send.clear();
      changed_.notify_all();
      return true;
    default: return false;
  }
}

bool TcpOffice::on_letter(Link& link, const Frame& frame, std::optional<std::string> bytes) {
  Peer& one = peer(link.peer);
  if (frame.number > one.came + 1) return false;
  if (frame.number == one.came + 1) {  // else it was sent twice
    one.box.push_back({frame.step, std::move(bytes)});
    ++one.came;
    changed_.notify_all();
  }
  link.say({FrameKind::kHave, one.came});
  write(link);
  return true;
}

void TcpOffice::post(int to, std::string bytes, const Step& step) {
  if (bytes.size() > kLongestLetter) {
    throw Error(ErrorCode::kLimit, fmt::format("a message of {} bytes for rank {} is longer than {} bytes",
                                               bytes.size(), to, kLongestLetter));
  }
  const Working working(*at_work_);
  const std::lock_guard lock(mutex_);
  Peer& one = peer(to);
  if (one.left || one.dead) fail_gone(to);
  one.to_send.push_back(
      std::make_shared<OutLetter>(OutLetter{one.posted + 1, step.number, std::move(bytes)}));
  ++one.posted;
  if (one.link != nullptr) write(*one.link);
  if (one.link == nullptr || one.link->wants_to_write()) ring(alarm_);
}

void TcpOffice::drop_older(Peer& one, const Step& step) {
  while (!one.box.empty() && one.box.front().step < step.number) one.box.pop_front();
}

// Until when it is worth waiting before one looks again. Throws when nothing will come.
TcpOffice::Time TcpOffice::patience(int from, const Step& step, Time began) {
  Peer& one = peer(from);
  const Time now = std::chrono::steady_clock::now();
  if (one.left || one.dead) fail_gone(from);
  if (now >= step.deadline) fail_late(from);
  const Time silent = std::max(began, one.heard) + silence_;
  if (now >= silent) fail_silent(from, one);
  const Time until = std::min(step.deadline, silent);
  if (one.link != nullptr || one.awaited) return until;
  const Time dials = std::max(began, one.broke) + kBeforeDialling;
  if (now < dials) return std::min(until, dials);
  one.awaited = true;
  ring(alarm_);
  return until;
}

void TcpOffice::fail_silent(int rank, const Peer& one) const {
  const double seconds = std::chrono::duration<double>(silence_).count();
  Error error(ErrorCode::kTimeout, fmt::format("rank {} has been silent for {:.3g} s", rank, seconds));
  error.on_rank(rank);
  if (one.link == nullptr && one.why != 0) error.with_errno(one.why);
  throw error;
}

void TcpOffice::wait_until(std::unique_lock<std::mutex>& lock, Time until) {
  // Signs of life are due at once where there were none for a while.
  if (std::chrono::steady_clock::now() >= next_beat_) ring(alarm_);
  changed_.wait_until(lock, until);
}

std::string TcpOffice::take(int from, const Step& step) {
  const Working working(*at_work_);
  const Time began = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  Peer& one = peer(from);
  const Waiting waiting({&one, 1});
  for (;;) {
    drop_older(one, step);
    if (!one.box.empty()) break;
    wait_until(lock, patience(from, step, began));
  }
  InLetter& letter = one.box.front();
  if (letter.step > step.number) fail_ahead(from, letter.step);
  if (!letter.bytes) {
    one.box.pop_front();
    throw Error(ErrorCode::kLimit, fmt::format("there is no memory for a message of rank {}", from));
  }
  std::string bytes = *std::move(letter.bytes);
  one.box.pop_front();
  return bytes;
}

void TcpOffice::await_all(const Step& step) {
  const Working working(*at_work_);
  const Time began = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  const Waiting waiting(peers_);
  for (;;) {
    Time until = Time::max();
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_) continue;
      drop_older(peer(rank), step);
      if (peer(rank).box.empty()) until = std::min(until, patience(rank, step, began));
    }
    if (until == Time::max()) return;
    wait_until(lock, until);
  }
}

std::optional<char> TcpOffice::peek(int from, const Step& step) {
  const std::lock_guard lock(mutex_);
  Peer& one = peer(from);
  drop_older(one, step);
  if (one.box.empty() && (one.left || one.dead)) fail_gone(from);
  if (one.link == nullptr && one.broke != Time{} && !one.awaited && !one.dead) {
    one.awaited = true;  // whether it has died is to be found out
    ring(alarm_);
  }
  if (one.box.empty() || one.box.front().step != step.number) return std::nullopt;
  const std::optional<std::string>& bytes = one.box.front().bytes;
  return bytes && !bytes->empty() ? std::optional(bytes->front()) : std::nullopt;
}

std::shared_ptr<void> TcpOffice::stay_alive() {
  ++*at_work_;
  std::shared_ptr<void> token(at_work_.get(), [at_work = at_work_](void*) { --*at_work; });
  const std::lock_guard lock(mutex_);
  if (std::chrono::steady_clock::now() >= next_beat_) ring(alarm_);
  return token;
}

}  // namespace cairn
