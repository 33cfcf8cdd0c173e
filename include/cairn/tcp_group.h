// Ranks over TCP: a group for processes that have nothing but a way to tell each other their addresses.
//
//   cairn::TcpListener listener;                       // on every rank; from here on it can be reached
//   std::vector<std::string> all = exchange(listener.addresses());    // by a file, a store, MPI, ...
//   cairn::GroupKey key = broadcast(cairn::random_group_key());       // the same on all ranks, told to
//   nobody else auto group = cairn::tcp_group(std::move(listener), {.rank = rank, .addresses = all, .key =
//   key}); cairn::save(state, "run/step-1000", {.group = group.get()});
//
// A rank dials those it has to talk to, at all of their addresses at once. A connection that breaks while
// both ends live is made again, and what was under way on it is sent again. Each group has one thread, which
// sends the signs of life too. A process that was forked from a rank is none: it has no connection of the
// group's and cannot use it.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "cairn/group.h"

namespace cairn {

class Socket;
struct TcpGroupOptions;

// What all ranks of a group know, and nobody else. It is proved, never sent: a stranger who connects is sent
// away and has learnt nothing, and one who took the port of a rank that died learns nothing either. What
// ranks say to each other is not encrypted.
using GroupKey = std::array<std::byte, 16>;
GroupKey random_group_key();

// A port of this process, where the other ranks will connect to.
class TcpListener {
 public:
  TcpListener();  // Error(kIo) when there is no descriptor or no port to be had
  TcpListener(TcpListener&&) noexcept;
  TcpListener& operator=(TcpListener&&) noexcept;
  ~TcpListener();

  // Those of all networks of this host, with the port: "10.0.0.7:41234,[2001:db8::7]:41234,127.0.0.1:41234".
  const std::string& addresses() const { return addresses_; }

 private:
  friend std::unique_ptr<Group> tcp_group(TcpListener, const TcpGroupOptions&);
  std::unique_ptr<Socket> socket_;
  std::string addresses_;
};

struct TcpGroupOptions {
  int rank = 0;
  std::vector<std::string> addresses{};  // by rank: what each one's listener said
  GroupKey key{};

  // How long a rank that others wait for may say nothing before they give it up: Error(kTimeout). One that is
  // in an exchange of the group, or holds a stay_alive(), says that it lives four times as often, at least
  // every minute. One whose connection breaks and whose port is closed has died, which is noticed at once.
  std::chrono::nanoseconds silence = std::chrono::minutes(30);
};

// One rank's end. Messages are up to 4 GiB long. May be used by many threads, each exchange by one. When it
// is destroyed, what it has sent is on its way to its end: it waits for those who take it, but for no longer
// than 5 s without progress. Error(kInvalidArgument) for addresses that are none, or a rank that has none.
std::unique_ptr<Group> tcp_group(TcpListener listener, const TcpGroupOptions& options);

}  // namespace cairn
