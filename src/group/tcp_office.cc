// What the thread of the office does. Letters and links are in tcp_letters.cc.
#include "group/tcp_office.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cairn/error.h"
#include "group/mail.h"

namespace cairn {
namespace {

using namespace std::chrono_literals;
using OfficeClock = std::chrono::steady_clock;

constexpr auto kLongestPause = 1min;  // between two signs of life, and two looks at the clock
constexpr auto kGreetingTime = 5s;    // for a handshake
constexpr auto kFirstRedial = 50ms;   // doubled up to
constexpr auto kLastRedial = 1s;
constexpr auto kLinger = 5s;  // without progress, when the group ends
constexpr auto kGoodbyeTime = 1s;
constexpr auto kNoDescriptor = 100ms;     // until it is tried again
constexpr std::size_t kMostGuests = 64;   // who have not proved who they are
constexpr std::size_t kMostDialled = 64;  // connections that are being made

}  // namespace

TcpOffice::TcpOffice(Socket listener, std::vector<std::vector<SocketAddress>> addresses, int rank,
                     GroupKey key, Duration silence)
    : rank_(rank),
      size_(static_cast<int>(addresses.size())),
      key_(key),
      silence_(std::clamp<Duration>(silence, 1ms, 24h * 3650)),
      beat_(std::min<Duration>(silence_ / 4, kLongestPause)),
      peers_(addresses.size()),
      listener_(std::move(listener)),
      alarm_(make_alarm()) {
  for (std::size_t i = 0; i < addresses.size(); ++i) peers_[i].addresses = std::move(addresses[i]);
  thread_ = std::thread([this] { serve(); });
}

TcpOffice::~TcpOffice() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    linger(OfficeClock::now());
  }
  ring(alarm_);
  thread_.join();
}

void TcpOffice::serve() {
  for (;;) {
    try {
      if (!turn()) break;
    } catch (...) {
      // No memory for a list: there may be some in a moment.
      std::this_thread::sleep_for(10ms);
    }
  }
  const std::lock_guard lock(mutex_);
  say_goodbye();
}

// Waits for something to happen, and sees to it. False when the group ends.
bool TcpOffice::turn() {
  Time until;
  {
    const std::lock_guard lock(mutex_);
    const Time now = OfficeClock::now();
    if (closing_ && (has_delivered_all() || now >= linger_)) return false;
    until = tend(now);
    std::erase_if(links_, [](const std::unique_ptr<Link>& link) { return link->ended; });
    expect_events();
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - OfficeClock::now()).count();
  if (::poll(polled_.data(), polled_.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000))) >
      0) {
    const std::lock_guard lock(mutex_);
    handle_events();
  }
  return true;
}

// What is due by the clock. Returns when the next thing is.
TcpOffice::Time TcpOffice::tend(Time now) {
  Time next = now + kLongestPause;
  if (closing_) next = std::min(next, linger_);
  if (*at_work_ > 0) {
    if (now >= next_beat_) send_signs_of_life(now);
    next = std::min(next, next_beat_);
  }
  if (now < next_accept_) next = std::min(next, next_accept_);
  std::size_t dialled = 0;
  for (const std::unique_ptr<Link>& link : links_) {
    if (link->ended || link->is_open()) continue;
    if (now - link->since >= kGreetingTime)
      end(*link, ETIMEDOUT);
    else
      next = std::min(next, link->since + kGreetingTime);
    if (!link->ended && link->is_dialled()) ++dialled;
  }
  for (int rank = 0; rank < size_; ++rank) {
    Peer& one = peer(rank);
    const bool is_wanted = one.awaited || !one.to_send.empty();
    if (!is_wanted || one.link != nullptr || one.dialling > 0 || one.left || one.dead) continue;
    if (now < one.next_dial) {
      next = std::min(next, one.next_dial);
    } else if (dialled < kMostDialled) {
      dial_peer(rank, now);
      dialled += one.dialling;
      next = now;  // to look at what came of it
    }
  }
  return next;
}

void TcpOffice::expect_events() {
  polled_.clear();
  polled_links_.clear();
  polled_.reserve(links_.size() + 2);
  polled_links_.reserve(links_.size());
  const bool may_accept = OfficeClock::now() >= next_accept_;
  polled_.push_back({alarm_.get(), POLLIN, 0});
  polled_.push_back({may_accept ? listener_.get() : -1, POLLIN, 0});
  for (const std::unique_ptr<Link>& link : links_) {
    const bool is_dialling = link->stage == Link::Stage::kDialling;
    const short events = is_dialling ? POLLOUT : link->wants_to_write() ? POLLIN | POLLOUT : POLLIN;
    polled_.push_back({link->socket().get(), events, 0});
    polled_links_.push_back(link.get());
  }
}

void TcpOffice::handle_events() {
  const Time now = OfficeClock::now();
  if (polled_[0].revents != 0) hush(alarm_);
  for (std::size_t i = 0; i < polled_links_.size(); ++i) {
    Link& link = *polled_links_[i];
    const short events = polled_[i + 2].revents;
    if (events == 0 || link.ended) continue;
    try {
      if (link.stage == Link::Stage::kDialling) {
        greet(link);
        continue;
      }
      if (link.is_open() && (events & POLLIN) != 0) peer(link.peer).heard = now;
      if ((events & POLLOUT) != 0) linger(now);
      if ((events & ~POLLOUT) != 0 && !link.read(*this))
        end(link, ECONNRESET);
      else if (!link.ended && link.wants_to_write())
        write(link);
    } catch (...) {
      end(link, ENOMEM);
    }
  }
  if (polled_[1].revents != 0) accept_guests(now);
}

// Nobody who only connects keeps others out: the one who has waited longest makes room.
void TcpOffice::accept_guests(Time now) {
  for (std::size_t i = 0; i < kMostGuests; ++i) {
    Socket socket = accept_from(listener_);
    if (!socket) {
      const bool has_none = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
      if (has_none) next_accept_ = now + kNoDescriptor;
      return;
    }
    links_.push_back(std::make_unique<Link>(std::move(socket), Link::Stage::kGuest, -1, 0, now));
    const auto is_guest = [](const auto& link) { return link->peer < 0 && !link->ended; };
    if (std::count_if(links_.begin(), links_.end(), is_guest) > static_cast<std::ptrdiff_t>(kMostGuests))
      end(**std::find_if(links_.begin(), links_.end(), is_guest), 0);
  }
}

void TcpOffice::dial_peer(int rank, Time now) {
  Peer& one = peer(rank);
  links_.reserve(links_.size() + one.addresses.size());
  one.dialling = one.addresses.size();
  one.refused = 0;
  for (std::size_t i = 0; i < one.addresses.size(); ++i) {
    Socket socket = dial(one.addresses[i]);
    if (!socket) {
      dial_ended(one, i, errno, now);
      continue;
    }
    try {
      links_.push_back(std::make_unique<Link>(std::move(socket), Link::Stage::kDialling, rank, i, now));
    } catch (const std::bad_alloc&) {
      dial_ended(one, i, ENOMEM, now);
    }
  }
}

// A port that refuses is closed: its rank has ended. Where it was never reached, all of its addresses must
// say so, because some may be those of another network.
void TcpOffice::dial_ended(Peer& one, std::size_t address, int error, Time now) {
  if (one.dialling == 0) return;
  --one.dialling;
  one.why = error;
  if (error == ECONNREFUSED) {
    ++one.refused;
    if (one.good == address || one.refused == one.addresses.size()) one.dead = true;
  }
  if (one.dialling == 0) {
    one.next_dial = now + std::max<Duration>(one.pause, kFirstRedial);
    one.pause = std::clamp<Duration>(2 * one.pause, kFirstRedial, kLastRedial);
  }
  if (one.dead) changed_.notify_all();
}

// Dialled, and the connection is there or is not.
void TcpOffice::greet(Link& link) {
  if (const int error = connect_error(link.socket()); error != 0) return end(link, error);
  const SocketAddress here = local_address(link.socket());
  const SocketAddress there = remote_address(link.socket());
  if (!there.is_internet()) return end(link, ECONNRESET);  // ended already; it may have made room for others
  // Where nobody listens the system may connect a socket to itself.
  if (here.is_same_host(there) && here.port() == there.port()) return end(link, ECONNREFUSED);
  link.stage = Link::Stage::kAwaitsChallenge;
  link.hello = make_hello(rank_, link.peer, size_);
  link.say(&link.hello, sizeof(link.hello));
  write(link);
}

void TcpOffice::send_signs_of_life(Time now) {
  next_beat_ = now + beat_;
  for (const std::unique_ptr<Link>& link : links_) {
    if (link->ended || !link->is_open() || link->wants_to_write()) continue;
    try {
      link->say({FrameKind::kAlive});
      write(*link);
    } catch (...) {
      end(*link, ENOMEM);
    }
  }
}

// Somebody still takes letters of a group that ends.
void TcpOffice::linger(Time now) {
  if (closing_) linger_ = std::max(linger_, now + std::min<Duration>(kLinger, silence_));
}

bool TcpOffice::has_delivered_all() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& one) { return one.to_send.empty() || one.left || one.dead; });
}

void TcpOffice::say_goodbye() {
  for (const std::unique_ptr<Link>& link : links_) {
    try {
      if (link->ended || !link->is_open()) continue;
      link->say({FrameKind::kBye});
      write(*link);
    } catch (...) {
      end(*link, ENOMEM);
    }
  }
  const Time until = OfficeClock::now() + std::min<Duration>(kGoodbyeTime, silence_);
  for (const std::unique_ptr<Link>& link : links_) {
    while (!link->ended && link->is_open() && link->wants_to_write() && OfficeClock::now() < until) {
      pollfd ready{link->socket().get(), POLLOUT, 0};
      (void)::poll(&ready, 1, 10);
      try {
        write(*link);
      } catch (...) {
        end(*link, ENOMEM);
      }
    }
  }
  links_.clear();
  for (Peer& one : peers_) one.link = nullptr;
  listener_ = Socket();
}

}  // namespace cairn
