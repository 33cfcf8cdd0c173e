// One rank's letters over TCP: those that came, those that are to go, and the thread that sees to both.
//
// All state is behind one mutex. The thread waits for all connections at once; it dials, greets, reads,
// writes, sends signs of life, and never waits for a single one. A letter stays here until the other end has
// said that it has it, so a connection can break at any byte: the next one begins with the first letter that
// is not there. Two ranks that dial each other at once have two connections: each sends its letters over the
// one that was opened last, and takes what comes over either.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cairn/group.h"
#include "group/link.h"

struct pollfd;

namespace cairn {

class TcpOffice final : Link::Owner {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  // `addresses` by rank; those of this one are not looked at.
  TcpOffice(Socket listener, std::vector<std::vector<SocketAddress>> addresses, int rank, GroupKey key,
            Duration silence);
  TcpOffice(const TcpOffice&) = delete;
  TcpOffice& operator=(const TcpOffice&) = delete;
  // Waits for those who still take letters of this rank, then says goodbye.
  ~TcpOffice();

  // As in Mail.
  void post(int to, std::string bytes, const Step& step);
  std::string take(int from, const Step& step);
  void await_all(const Step& step);
  std::optional<char> peek(int from, const Step& step);
  std::shared_ptr<void> stay_alive();

 private:
  struct InLetter {
    std::uint64_t step;
    std::optional<std::string> bytes;  // none: there was no memory for them
  };
  struct Peer {
    std::vector<SocketAddress> addresses;
    std::optional<std::size_t> good;  // of them: where it was reached last
    std::deque<InLetter> box;
    std::uint64_t came = 0;                                // letters of it
    std::deque<std::shared_ptr<const OutLetter>> to_send;  // and those sent that it may not have
    std::uint64_t posted = 0;
    Link* link = nullptr;  // for letters and signs of life
    Time heard{};
    Time broke{};          // when its link did
    bool awaited = false;  // somebody waits for word of it
    bool left = false;     // it said so
    bool dead = false;     // nobody listens at its port any more
    std::size_t dialling = 0;
    std::size_t refused = 0;
    Time next_dial{};
    Duration pause{};
    int why = 0;  // it could not be reached: errno
  };

  // The thread.
  void serve();
  bool turn();
  Time tend(Time now);
  void expect_events();
  void handle_events();
  void accept_guests(Time now);
  void dial_peer(int rank, Time now);
  void dial_ended(Peer& peer, std::size_t address, int error, Time now);
  void greet(Link& link);
  void send_signs_of_life(Time now);
  void linger(Time now);
  bool has_delivered_all() const;
  void say_goodbye();

  // Links.
  bool on_greeting(Link& link, const char* bytes) override;
  bool on_frame(Link& link, const Frame& frame) override;
  bool on_letter(Link& link, const Frame& frame, std::optional<std::string> bytes) override;
  std::shared_ptr<const OutLetter> next_letter(Link& link) override;
  void prove_one(int rank);
  bool open(Link& link, const Proof& proof);
  void end(Link& link, int error);
  void use(Peer& peer, Link* link);
  void write(Link& link);

  // Those who wait. When they go, they await nobody any more.
  class Waiting {
   public:
    explicit Waiting(std::span<Peer> peers) : peers_(peers) {}
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting() {
      for (Peer& one : peers_) one.awaited = false;
    }

   private:
    std::span<Peer> peers_;
  };
  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  void drop_older(Peer& peer, const Step& step);
  Time patience(int from, const Step& step, Time began);
  void wait_until(std::unique_lock<std::mutex>& lock, Time until);
  [[noreturn]] void fail_silent(int rank, const Peer& peer) const;

  const int rank_;
  const int size_;
  const GroupKey key_;
  const Duration silence_;
  const Duration beat_;  // between two signs of life

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Peer> peers_;
  std::vector<std::unique_ptr<Link>> links_;  // only the thread adds and removes them
  Time next_beat_{};
  Time next_accept_{};
  bool closing_ = false;
  Time linger_{};  // when closing: until when letters are still brought
  const std::shared_ptr<std::atomic<int>> at_work_ = std::make_shared<std::atomic<int>>(0);

  Socket listener_;
  Socket alarm_;
  std::vector<pollfd> polled_;       // the thread's: the alarm, the listener, then
  std::vector<Link*> polled_links_;  // these
  std::thread thread_;
};

}  // namespace cairn
