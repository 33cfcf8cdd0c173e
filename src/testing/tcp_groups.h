// Ranks over TCP in one process.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cairn/tcp_group.h"

namespace cairn {

inline std::vector<std::unique_ptr<Group>> tcp_groups_of(int size, std::chrono::nanoseconds silence) {
  std::vector<TcpListener> listeners(static_cast<std::size_t>(size));
  TcpGroupOptions options{.key = random_group_key(), .silence = silence};
  for (const TcpListener& listener : listeners) options.addresses.push_back(listener.addresses());
  std::vector<std::unique_ptr<Group>> groups;
  for (TcpListener& listener : listeners) {
    groups.push_back(tcp_group(std::move(listener), options));
    ++options.rank;
  }
  return groups;
}

inline std::vector<std::unique_ptr<Group>> tcp_groups(int size) {
  return tcp_groups_of(size, std::chrono::minutes(10));
}

}  // namespace cairn
