#include "format/hf_names.h"

#include <gtest/gtest.h>

namespace cairn {
namespace hf_names_test {

TEST(HfNames, AreThoseOfDcp) {
  EXPECT_EQ(hf_file_name(1, 4), "model-00001-of-00004.safetensors");
  EXPECT_EQ(hf_file_name(1, 4, 3), "shard-00003-model-00001-of-00004.safetensors");
  EXPECT_EQ(hf_file_name(123456, 123456), "model-123456-of-123456.safetensors");
}

TEST(HfNames, AShardIsKnownByItsName) {
  EXPECT_TRUE(is_hf_shard(hf_file_name(1, 4, 3)));
  EXPECT_TRUE(is_hf_shard(hf_file_name(1, 123456, 123456)));
  for (const char* name :
       {"model-00001-of-00004.safetensors", "shard-00003-model-00001-of-00004.safetensors.tmp",
        "shard-3-model-00001-of-00004.safetensors", "shard-00003-.safetensors", ""})
    EXPECT_FALSE(is_hf_shard(name)) << name;
}

}  // namespace hf_names_test
}  // namespace cairn
