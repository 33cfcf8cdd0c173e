// One connection between two ranks: letters, and what is said about them, as bytes in and out.
//
// After the handshake (handshake.h) both ends send frames of 32 bytes; the bytes of a letter follow its
// frame.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "group/handshake.h"
#include "group/socket.h"

namespace cairn {

inline constexpr std::uint64_t kLongestLetter = std::uint64_t{1} << 32;

// Letters from one rank to another are numbered from 1. They are kept until the other end has them.
struct OutLetter {
  std::uint64_t number;
  std::uint64_t step;
  std::string bytes;
};

enum class FrameKind : std::uint64_t {
  kLetter = 1,  // number, step, size; its bytes follow
  kHave,        // all letters up to `number` have come
  kAlive,       // this rank is at work
  kBye,         // this rank leaves the group
};

struct Frame {
  FrameKind kind;
  std::uint64_t number = 0;
  std::uint64_t step = 0;
  std::uint64_t size = 0;
};
static_assert(sizeof(Frame) == 32);

class Link {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Who dialled goes through the first four, who was dialled through the next two.
  enum class Stage { kDialling, kAwaitsChallenge, kHeld, kAwaitsWelcome, kGuest, kAwaitsProof, kOpen };

  // Whoever has links. What returns false ends the link, and so does what it throws.
  class Owner {
   public:
    virtual bool on_greeting(Link& link, const char* bytes) = 0;  // as many as the stage asks for
    virtual bool on_frame(Link& link, const Frame& frame) = 0;    // any but a letter
    // Without bytes: there was no memory for them.
    virtual bool on_letter(Link& link, const Frame& frame, std::optional<std::string> bytes) = 0;
    virtual std::shared_ptr<const OutLetter> next_letter(Link& link) = 0;  // null: none to be sent now

   protected:
    ~Owner() = default;
  };

  Link(Socket with, Stage at, int rank, std::size_t address_of_rank, Time now)
      : stage(at), peer(rank), address(address_of_rank), since(now), socket_(std::move(with)) {}

  // Read and write what can be without waiting, but not for ever. False: the connection has ended.
  bool read(Owner& owner);
  bool write(Owner& owner);

  // To be written after the letter that is under way.
  void say(const void* bytes, std::size_t size) {
    said_.append(static_cast<const char*>(bytes), size);
    wants_to_write_ = true;
  }
  void say(const Frame& frame) { say(&frame, sizeof(frame)); }

  bool wants_to_write() const { return wants_to_write_; }
  bool is_dialled() const { return dialled_; }
  bool is_open() const { return stage == Stage::kOpen; }
  const Socket& socket() const { return socket_; }

  Stage stage;
  int peer;                   // -1: a guest, who has not yet proved who it is
  const std::size_t address;  // of the peer's, where it was dialled
  const Time since;
  bool ended = false;
  Hello hello{};
  Challenge challenge{};
  std::uint64_t next = 1;  // the number of the next letter to be sent here

 private:
  std::size_t head_size() const;
  bool take_head(Owner& owner);
  bool take_letter(Owner& owner);
  ssize_t receive_head();
  ssize_t receive_bytes();
  ssize_t send_said();
  ssize_t send_letter();

  Socket socket_;
  const bool dialled_ = stage == Stage::kDialling;
  // What comes in.
  std::array<char, sizeof(Hello)> head_{};
  std::size_t head_have_ = 0;
  bool in_letter_ = false;
  Frame letter_in_{};
  std::optional<std::string> bytes_in_;
  std::uint64_t bytes_have_ = 0;
  // What goes out.
  std::string said_;
  std::size_t said_at_ = 0;
  std::shared_ptr<const OutLetter> letter_out_;
  Frame frame_out_{};
  std::uint64_t letter_at_ = 0;  // of the frame and the bytes together
  bool wants_to_write_ = false;
};

}  // namespace cairn
