// Messages between two ranks: the part of a group that differs from transport to transport.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cairn/group.h"

namespace cairn {

// One rank's letter box. Used by one thread at a time.
class Mail {
 public:
  virtual ~Mail() = default;

  // Hands the bytes over for rank `to`. May wait for it, at most until the deadline.
  virtual void send(int to, std::string bytes, const Step& step) = 0;
  // The bytes that rank `from` sent in this step. Older ones are dropped on the way.
  virtual std::string receive(int from, const Step& step) = 0;

  // Before the root takes everybody's bytes, for transports that know who lives: waits until those of all
  // other ranks have come, or one of them is given up, whoever is waited for first.
  virtual void await_all(const Step& /*step*/) {}

  // As in Group.
  virtual std::shared_ptr<void> stay_alive() { return nullptr; }

  // For transports that can look ahead: the first byte of what receive() would return, if it has come. Throws
  // when it never will.
  virtual bool looks_ahead() const { return false; }
  virtual std::optional<char> peek(int /*from*/, const Step& /*step*/) { return std::nullopt; }
};

// A group on top of it: gather and scatter straight to and from the root, the rest along a tree.
std::unique_ptr<Group> group_over(std::unique_ptr<Mail> mail, int rank, int size);

[[noreturn]] void fail_late(int rank);                             // kTimeout
[[noreturn]] void fail_ahead(int rank, std::uint64_t their_step);  // kConflict
[[noreturn]] void fail_gone(int rank);                             // kCancelled

}  // namespace cairn
