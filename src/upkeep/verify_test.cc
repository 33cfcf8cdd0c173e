#include "cairn/verify.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "format/safetensors.h"
#include "testing/errors.h"
#include "testing/faulty.h"
#include "testing/verify.h"

namespace cairn {
namespace {

TEST(Verify, FindsNothingInASoundCheckpoint) {
  const Files files = saved(large_state(1));
  const VerifyReport report = verify(*files);
  EXPECT_TRUE(report.ok()) << all_of(report);
  EXPECT_EQ(report.tensors, 3U);
  EXPECT_EQ(report.objects, 1U);
  EXPECT_GE(report.items, 4U);
  EXPECT_EQ(report.files, files->list().size());
  std::uint64_t bytes = 0;
  for (const FileEntry& entry : files->list())
    if (entry.name != manifest_in(*files)) bytes += entry.size;
  EXPECT_EQ(report.bytes_checked, bytes);
  EXPECT_TRUE(report.unchecked.empty());
  EXPECT_TRUE(report.debris.empty());
}

TEST(Verify, FindsNothingInSoundCheckpointsOfOtherOptions) {
  EXPECT_TRUE(verify(*saved(large_state(1), one_file(with_strong_hashes))).ok());
  EXPECT_TRUE(verify(*saved(large_state(1), one_file(with_zstd))).ok());
  EXPECT_TRUE(verify(*saved_by_ranks(3)).ok());
}

TEST(Verify, SaysWhatWasSavedWithoutChecksums) {
  const VerifyReport report = verify(*saved(large_state(1), one_file(without_checksums)));
  EXPECT_TRUE(report.ok()) << all_of(report);
  EXPECT_FALSE(report.unchecked.empty());
}

TEST(Verify, FindsAMissingFile) {
  const Files files = saved(large_state(1));
  const std::string lost = place_of(*files, "big").relative_path;
  files->remove(lost);
  const VerifyReport report = verify(*files);
  EXPECT_TRUE(has(report, ProblemKind::kMissing, lost, "", "'big'")) << all_of(report);
}

TEST(Verify, FindsAMissingManifestAndChecksWithoutIt) {
  const Files files = saved(large_state(1));
  const std::string manifest = manifest_in(*files);
  files->remove(manifest);
  const VerifyReport report = verify(*files);
  EXPECT_EQ(report.problems.size(), 1U) << all_of(report);
  EXPECT_TRUE(has(report, ProblemKind::kMissing, manifest));
  EXPECT_GT(report.bytes_checked, 4 * kMiB);
}

TEST(Verify, FindsACutFile) {
  for (const char* name : {"big", "half"}) {
    const Files files = saved(large_state(1));
    const std::string file = place_of(*files, name).relative_path;
    for (const std::uint64_t cut : {std::uint64_t{1}, kMiB, kMiB + 17}) {
      const std::string bytes = get_file(*files, file);
      put_file(*files, file, bytes.substr(0, bytes.size() - cut));
      const VerifyReport report = verify(*files);
      EXPECT_TRUE(has(report, ProblemKind::kShort, file, "", "'")) << all_of(report);
    }
    put_file(*files, file, "");
    EXPECT_TRUE(has(verify(*files), ProblemKind::kShort, file, "", "has 0 bytes"));
  }
}

TEST(Verify, FindsAGrownFile) {
  const Files files = saved(large_state(1));
  for (const FileEntry& entry : files->list()) {
    const std::string bytes = get_file(*files, entry.name);
    put_file(*files, entry.name, bytes + std::string(1, '\0'));
    EXPECT_FALSE(verify(*files).ok()) << entry.name;
    put_file(*files, entry.name, bytes);
  }
  const std::string file = place_of(*files, "big").relative_path;
  put_file(*files, file, get_file(*files, file) + "x");
  EXPECT_TRUE(has(verify(*files), ProblemKind::kLong, file));
}

TEST(Verify, NamesTheTensorThatAFlippedBitHits) {
  const Files files = saved(large_state(1), one_file());
  for (const std::string name : {"big", "half", "small", "step"}) {
    const StorageInfo place = place_of(*files, name);
    const auto bit = static_cast<std::size_t>(place.offset + place.length / 2) * 8 + 3;
    flip_bit(*files, place.relative_path, bit);
    const VerifyReport report = verify(*files);
    ASSERT_EQ(report.problems.size(), 1U) << all_of(report);
    EXPECT_EQ(report.problems[0].kind, ProblemKind::kFlipped);
    EXPECT_EQ(report.problems[0].tensor, name);
    EXPECT_EQ(report.problems[0].file, place.relative_path);
    EXPECT_LE(*report.problems[0].offset, bit / 8);
    EXPECT_GT(*report.problems[0].offset + kMiB, bit / 8);
    flip_bit(*files, place.relative_path, bit);
  }
}

TEST(Verify, FindsAFlippedBitBetweenItems) {
  const Files files = saved(large_state(1), one_file());
  const Manifest manifest = read_manifest(*files->open(manifest_in(*files)));
  for (const ManifestFile& file : manifest.files) {
    std::uint64_t end = 0;
    for (const ManifestItem& item : file.items) {
      if (item.offset > end) {
        flip_bit(*files, file.name, end * 8);
        const VerifyReport report = verify(*files);
        ASSERT_EQ(report.problems.size(), 1U) << all_of(report);
        EXPECT_EQ(report.problems[0].tensor, "");
        EXPECT_TRUE(has(report, ProblemKind::kFlipped, file.name));
        return;
      }
      end = item.offset + item.length;
    }
  }
  FAIL() << "no padding anywhere";
}

TEST(Verify, FindsSwappedBlocks) {
  const Files files = saved(large_state(1), one_file());
  const std::string file = place_of(*files, "big").relative_path;
  std::string bytes = get_file(*files, file);
  std::swap_ranges(bytes.begin() + kMiB, bytes.begin() + 2 * kMiB, bytes.begin() + 2 * kMiB);
  put_file(*files, file, bytes);
  const VerifyReport report = verify(*files);
  EXPECT_TRUE(has(report, ProblemKind::kSwapped, file, "", "they belong to")) << all_of(report);
}

TEST(Verify, FindsAZeroedPage) {
  const Files files = saved(large_state(1));
  const std::string file = place_of(*files, "big").relative_path;
  std::string bytes = get_file(*files, file);
  std::fill_n(bytes.begin() + kMiB + 4096, 4096, '\0');
  put_file(*files, file, bytes);
  EXPECT_TRUE(has(verify(*files), ProblemKind::kFlipped, file));
}

TEST(Verify, FindsFilesThatChangedPlaces) {
  const Files files = saved(large_state(1));
  const auto data = names(*files, DcpName::Kind::kData);
  ASSERT_EQ(data.size(), 2U);
  files->rename(data[0], "x");
  files->rename(data[1], data[0]);
  files->rename("x", data[1]);
  EXPECT_FALSE(verify(*files).ok());
}

TEST(Verify, FindsAFileOfTheSaveBeforeUnderTheSameName) {
  const Files files = saved(large_state(1)), before = saved(large_state(2));
  const auto data = names(*files, DcpName::Kind::kData), old = names(*before, DcpName::Kind::kData);
  for (std::size_t i = 0; i < data.size(); ++i) {
    const std::string bytes = get_file(*files, data[i]), others = get_file(*before, old[i]);
    ASSERT_EQ(bytes.size(), others.size());
    put_file(*files, data[i], others);
    const VerifyReport report = verify(*files);
    EXPECT_TRUE(has(report, ProblemKind::kFlipped, data[i])) << all_of(report);
    put_file(*files, data[i], bytes);
  }
}

TEST(Verify, FindsAManifestOfAnotherSave) {
  const Files files = saved(large_state(1)), other = saved(large_state(1));
  put_file(*files, manifest_in(*files), get_file(*other, manifest_in(*other)));
  const VerifyReport report = verify(*files);
  EXPECT_TRUE(has(report, ProblemKind::kForeign, manifest_in(*files))) << all_of(report);
}

TEST(Verify, FindsTheMetadataOfAnotherSave) {
  const Files files = saved(large_state(1)), other = saved(large_state(1));
  put_file(*files, ".metadata", get_file(*other, ".metadata"));
  EXPECT_FALSE(verify(*files).ok());
}

TEST(Verify, FindsAReferenceToAnotherSavesFile) {
  DcpFiles maker;
  const std::string file = data_file_name(0, 0, random_save_id());
  maker.whole("w", file, arange({4}));
  const VerifyReport report = verify(*maker.in_memory());
  EXPECT_TRUE(has(report, ProblemKind::kForeign, file)) << all_of(report);
}

TEST(Verify, FindsItemsThatTheManifestHasElsewhere) {
  DcpFiles maker;  // its manifest knows of no items
  maker.whole("w", data_file_name(0, 0, maker.save_id), arange({4}));
  const VerifyReport report = verify(*maker.in_memory());
  EXPECT_EQ(report.problems.size(), 1U) << all_of(report);
  EXPECT_TRUE(has(report, ProblemKind::kMisplaced, data_file_name(0, 0, maker.save_id), "w"));
}

TEST(Verify, AMetadataFileThatCannotBeReadIsAProblem) {
  const Files files = saved(large_state(1));
  put_file(*files, ".metadata", "rubbish");
  const VerifyReport report = verify(*files);
  EXPECT_TRUE(has(report, ProblemKind::kUnreadable, ".metadata")) << all_of(report);
  EXPECT_GT(report.bytes_checked, 4 * kMiB);  // by the manifest, which is still there
}

TEST(Verify, AManifestThatCannotBeReadIsAProblem) {
  const Files files = saved(large_state(1));
  flip_bit(*files, manifest_in(*files), 800);
  EXPECT_TRUE(has(verify(*files), ProblemKind::kUnreadable, manifest_in(*files)));
}

TEST(Verify, LooksAtEveryRanksOwnFiles) {
  const Files files = saved_by_ranks(3);
  for (const FileEntry& entry : files->list()) {
    flip_bit(*files, entry.name, entry.size * 4);
    const VerifyReport report = verify(*files);
    EXPECT_FALSE(report.ok()) << entry.name;
    flip_bit(*files, entry.name, entry.size * 4);
  }
  files->remove("__1.metadata");
  EXPECT_TRUE(has(verify(*files), ProblemKind::kUncovered, "", "model.w"));
}

TEST(Verify, DisksThatCannotReadAreProblemsOrErrors) {
  const auto faults = std::make_shared<Faults>();
  auto inner = memory_file_system();
  const Files sound = saved(trainer_state(0, 1, 1));
  for (const FileEntry& entry : sound->list()) put_file(*inner, entry.name, get_file(*sound, entry.name));
  const auto files = faulty_file_system(std::move(inner), faults);
  VerifyOptions options;
  options.threads = 1;
  ASSERT_TRUE(verify(*files, options).ok());
  const std::size_t calls = faults->trace().size();
  for (std::size_t n = 1; n <= calls; ++n) {
    faults->clear();
    faults->fail({.nth = n});
    try {
      EXPECT_FALSE(verify(*files, options).ok()) << n;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kIo);
    }
    EXPECT_EQ(faults->fired(), 1U);
  }
}

TEST(Verify, ListsDebrisWhichIsNoProblem) {
  const Files files = saved(large_state(1));
  put_file(*files, data_file_name(0, 0, random_save_id()), "left over");
  put_file(*files, "notes.txt", "mine");
  const VerifyReport report = verify(*files);
  EXPECT_TRUE(report.ok());
  ASSERT_EQ(report.debris.size(), 1U);
  EXPECT_EQ(report.debris[0].size, 9U);
}

TEST(Verify, TellsHowFarItIs) {
  const Files files = saved(large_state(1));
  VerifyOptions options;
  std::vector<Progress> told;
  options.progress = [&](const Progress& progress) { told.push_back(progress); };
  const VerifyReport report = verify(*files, options);
  ASSERT_GE(told.size(), 2U);
  EXPECT_EQ(told.back().phase, "verify");
  EXPECT_EQ(told.back().done, report.bytes_checked);
  EXPECT_EQ(told.back().total, report.bytes_checked);
}

TEST(Verify, NeedsMemoryForABlock) {
  VerifyOptions options;
  options.memory_budget = 1000;
  const Files files = saved(large_state(1));
  EXPECT_EQ(error_of([&] { verify(*files, options); }).code(), ErrorCode::kLimit);
}

TEST(Verify, WhatIsNotThereIsNotFound) {
  const TestFolder folder;
  EXPECT_EQ(error_of([&] { verify(folder / "none"); }).code(), ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { verify(*memory_file_system()); }).code(), ErrorCode::kNotFound);
  folder.write("notes.txt", "no checkpoint");
  EXPECT_EQ(error_of([&] { verify(folder.path()); }).code(), ErrorCode::kUnsupported);
}

TEST(Verify, ReadsACheckpointInADirectory) {
  const TestFolder folder;
  save(large_state(1), folder / "run");
  EXPECT_TRUE(verify(folder / "run").ok()) << all_of(verify(folder / "run"));
}

TEST(Verify, ChecksTheRecordsOfATorchFile) {
  const TestFolder folder;
  std::string bytes = torch_bytes(Dict{{"w", Value(arange({64}))}, {"step", Value(1)}});
  const std::string path = folder.write("m.pt", bytes);
  const VerifyReport sound = verify(path);
  EXPECT_TRUE(sound.ok());
  EXPECT_EQ(sound.format, Format::kTorchFile);
  EXPECT_GE(sound.bytes_checked, 256U);
  const auto place = Checkpoint::open(path)->chunks(0).at(0);
  bytes[place.offset + 5] = static_cast<char>(bytes[place.offset + 5] ^ 1);
  folder.write("m.pt", bytes);
  EXPECT_TRUE(has(verify(path), ProblemKind::kFlipped, "m.pt"));
  folder.write("m.pt", bytes.substr(0, bytes.size() - 1));
  EXPECT_TRUE(has(verify(path), ProblemKind::kUnreadable, "m.pt"));
}

TEST(Verify, ChecksHeadersAndSizesOfSafetensors) {
  const TestFolder folder;
  StringSink sink;
  write_safetensors(sink, {{"w", arange({4})}}, {});
  const std::string path = folder.write("hf/m.safetensors", sink.text);
  const VerifyReport sound = verify(path);
  EXPECT_TRUE(sound.ok());
  EXPECT_EQ(sound.bytes_checked, 0U);
  ASSERT_EQ(sound.unchecked.size(), 1U);
  EXPECT_EQ(sound.unchecked[0].bytes, sink.text.size());
  EXPECT_TRUE(verify(folder / "hf").ok());
  folder.write("hf/model.safetensors.index.json",
               write_safetensors_index({{{"w", "m.safetensors"}, {"v", "n.safetensors"}}, 32}));
  EXPECT_TRUE(has(verify(folder / "hf"), ProblemKind::kMissing, "n.safetensors"));
  folder.write("hf/m.safetensors", sink.text.substr(0, sink.text.size() - 1));
  EXPECT_TRUE(has(verify(path), ProblemKind::kUnreadable, "m.safetensors"));
}

TEST(Verify, ReadsWhatTorchWrote) {
  const VerifyReport report = verify(CAIRN_SOURCE_DIR "/tests/golden/torch-2.11-two-ranks");
  EXPECT_TRUE(report.ok()) << all_of(report);
  EXPECT_EQ(report.tensors, 4U);
  EXPECT_EQ(report.objects, 7U);
  EXPECT_EQ(report.files, 3U);
}

TEST(Verify, ProblemsReadAsOneLine) {
  EXPECT_EQ(to_string(Problem{ProblemKind::kShort, "f", "w", 8, "cut"}), "f: 'w': at byte 8: cut (short)");
  EXPECT_EQ(to_string(Problem{ProblemKind::kUncovered, "", "w", std::nullopt, "a hole"}),
            "'w': a hole (uncovered)");
}

}  // namespace
}  // namespace cairn
