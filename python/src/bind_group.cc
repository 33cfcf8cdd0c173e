// Ranks that talk over TCP.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "cairn/error.h"
#include "group.h"

using namespace nb::literals;

namespace cairn::python {
namespace {

std::chrono::nanoseconds nanoseconds_of(double seconds) {
  constexpr double kLongest = 3650.0 * 24 * 3600;
  return std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(seconds, kLongest) * 1e9));
}

// Everybody's bytes, by rank.
nb::list all_gather(PythonGroup& group, nb::bytes mine, double seconds) {
  std::vector<std::string> all;
  {
    std::string bytes(bytes_of(mine));
    nb::gil_scoped_release release;
    const auto turn = turn_of(&group);
    const Step step{group.begin_operation() + 1, Step::in(nanoseconds_of(seconds))};
    all = group.all_gather(std::move(bytes), step);
  }
  nb::list parts;
  for (const std::string& part : all) parts.append(to_bytes(part));
  return parts;
}

// As long as it lives and has not ended, the others hear that this rank is at work.
class AtWork {
 public:
  explicit AtWork(PythonGroup& group) : alive_(group.stay_alive()) {}
  void end() { alive_.reset(); }

 private:
  std::shared_ptr<void> alive_;
};

}  // namespace

void bind_group(nb::module_& m) {
  nb::class_<TcpListener>(m, "Listener")
      .def(nb::init<>())
      .def_prop_ro("addresses", [](const TcpListener& self) { return self.addresses(); });

  nb::class_<AtWork>(m, "AtWork").def("end", &AtWork::end);

  nb::class_<PythonGroup>(m, "Group")
      .def(
          "__init__",
          [](PythonGroup* self, TcpListener& listener, int rank, std::vector<std::string> addresses,
             nb::bytes key, double silence) {
            TcpGroupOptions options{
                .rank = rank, .addresses = std::move(addresses), .silence = nanoseconds_of(silence)};
            const std::string_view bytes = bytes_of(key);
            if (bytes.size() != options.key.size())
              throw Error(ErrorCode::kInvalidArgument, "the key of a group has 16 bytes");
            std::memcpy(options.key.data(), bytes.data(), bytes.size());
            new (self) PythonGroup(tcp_group(std::move(listener), options));
          },
          "listener"_a, "rank"_a, "addresses"_a, "key"_a, "silence"_a)
      .def_prop_ro("rank", &PythonGroup::rank)
      .def_prop_ro("size", &PythonGroup::size)
      .def("at_work", [](PythonGroup& self) { return new AtWork(self); })
      .def("all_gather", all_gather, "mine"_a, "seconds"_a);

  m.def("random_group_key", [] {
    const GroupKey key = random_group_key();
    return to_bytes({reinterpret_cast<const char*>(key.data()), key.size()});
  });
}

}  // namespace cairn::python
