#include "checkpoint/rank_sets.h"

#include <gtest/gtest.h>

#include <string>

#include "base/bytes.h"
#include "base/hash.h"
#include "checkpoint/dcp_names.h"
#include "format/dcp_metadata.h"
#include "testing/dcp.h"
#include "testing/errors.h"
#include "testing/faulty.h"

namespace cairn {
namespace {

std::string part_of_set(const RankSet& set, int step) {
  Metadata metadata;
  metadata.storage_meta.emplace();
  note_rank_set(*metadata.storage_meta, set);
  metadata.storage_meta->extra.set("step", Value(step));
  return encode_dcp_metadata(metadata, {});
}

class RankSets : public testing::Test {
 protected:
  std::shared_ptr<Faults> faults = std::make_shared<Faults>();
  std::shared_ptr<FileSystem> files = faulty_file_system(memory_file_system(), faults);
  const RankSet old{{}, 1, {}};

  // A set that replaces what stands.
  RankSet next() const { return {digest_of(*files, metadata_name(0), {}), 1, {std::byte{1}}}; }
  StandingRanks standing(const Limits& limits = {}) const {
    return standing_ranks(*files, files->list(), limits);
  }
};

TEST_F(RankSets, APartUnderANextNameStandsWhenItSaysSo) {
  put_file(*files, metadata_name(0), part_of_set(old, 1));
  const std::string name = name_beside(0, next());
  put_file(*files, name, part_of_set(next(), 2));
  EXPECT_EQ(standing().parts, (RankFiles{{0, name}}));
}

TEST_F(RankSets, AFileThatIsOfASetByItsNameAloneIsNoPartOfIt) {
  for (const std::string& text : {std::string(), part_of_set(old, 2)}) {
    files = faulty_file_system(memory_file_system(), faults);
    put_file(*files, metadata_name(0), part_of_set(old, 1));
    put_file(*files, name_beside(0, next()), text);
    EXPECT_EQ(standing().parts, (RankFiles{{0, metadata_name(0)}}));
    EXPECT_FALSE(is_complete(next(), *files, files->list()));
  }
}

TEST_F(RankSets, MetadataThatIsTooLargeIsNotRead) {
  Limits limits;
  limits.metadata_bytes = 1000;
  const std::string large(4000, 'x');
  for (const bool of_all : {false, true}) {
    files = faulty_file_system(memory_file_system(), faults);
    const std::string name = of_all ? ".metadata" : "__0.metadata";
    put_file(*files, name, large);
    const RankSet set{xxh3_128(as_bytes(large)), 1, {}};
    put_file(*files, name_beside(0, set), part_of_set(set, 1));
    faults->clear();
    EXPECT_EQ(code_of([&] { next_set(*files, files->list(), 1, {}, limits); }), ErrorCode::kLimit);
    if (!of_all) {
      EXPECT_EQ(code_of([&] { standing(limits); }), ErrorCode::kLimit);
    }
    for (const Faults::Call& call : faults->trace())
      EXPECT_FALSE(call.call == FileCall::kRead && call.name == name);
  }
}

}  // namespace
}  // namespace cairn
