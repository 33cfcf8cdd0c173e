// What ranks do while one of them is disturbed: saves, loads, clean-ups, conversions.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "forked_ranks.h"

namespace cairn {

// What was done to which rank, and how all of them ended.
struct Outcome {
  std::string point, action;  // "kill", "error", "sleep"; both empty when nobody was disturbed
  int victim = 0;
  std::vector<Ended> ranks;

  bool any_succeeded() const {
    for (const Ended& rank : ranks)
      if (rank.status == kSucceeded) return true;
    return false;
  }
};

// One thing that ranks do, again and again, in a directory of its own.
class Scene {
 public:
  virtual ~Scene() = default;
  virtual std::string name() const = 0;
  virtual int ranks() const = 0;
  // Whether it fails on all ranks when nobody is disturbed.
  virtual bool fails() const { return false; }

  virtual void prepare() = 0;          // the place, in this process
  virtual void run(Group& group) = 0;  // on every rank, in a process of its own
  // Throws when a promise is broken: what is there must be whole, what a rank said must be true, and the next
  // one must work without help and leave nothing behind.
  virtual void check(const Outcome& outcome) = 0;
};

std::vector<std::unique_ptr<Scene>> save_scenes(const std::string& dir);   // save_scenes.cc
std::vector<std::unique_ptr<Scene>> other_scenes(const std::string& dir);  // other_scenes.cc

}  // namespace cairn
