#include "lockstep/backend/cpu/cpu_features.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "lockstep/backend/backend.h"
#include "tests/environment_variable.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

TEST(Simd, IsTheWidestUnlessTheSettingNamesLess) {
  EXPECT_EQ(choose_simd({}, Simd::avx512), Simd::avx512);
  EXPECT_EQ(choose_simd({}, Simd::scalar), Simd::scalar);
  EXPECT_EQ(choose_simd("avx2", Simd::avx512), Simd::avx2);
  EXPECT_EQ(choose_simd("scalar", Simd::avx2), Simd::scalar);
  EXPECT_EQ(choose_simd("avx512", Simd::avx512), Simd::avx512);
}

TEST(Simd, WrongSettingsAreErrors) {
  EXPECT_ERROR(choose_simd("avx512", Simd::avx2), "LOCKSTEP_SIMD is avx512, but this processor supports at most avx2");
  EXPECT_ERROR(choose_simd("neon", Simd::avx512), "LOCKSTEP_SIMD is neon, but this processor supports at most avx512");
  EXPECT_ERROR(choose_simd("avx2", Simd::neon), "LOCKSTEP_SIMD is avx2, but this processor supports at most neon");
  EXPECT_ERROR(choose_simd("mmx", Simd::avx512), "LOCKSTEP_SIMD is \"mmx\", expected scalar, avx2, avx512, or neon");
  EXPECT_ERROR(choose_simd("", Simd::avx512), "LOCKSTEP_SIMD is \"\"");
}

// The environment is read once: each of these is a process of its own.
class SimdOfAProcess : public ::testing::Test {
 protected:
  void SetUp() override { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_F(SimdOfAProcess, WrongSettingIsAnErrorOfTheBackEnd) {
  EnvironmentVariable simd_limit("LOCKSTEP_SIMD", "mmx");
  auto make = [] {
    try {
      make_cpu_backend();
    } catch (const Error& e) {
      std::fprintf(stderr, "%s\n", e.what());
      std::exit(3);
    }
    std::exit(0);
  };
  EXPECT_EXIT(make(), ::testing::ExitedWithCode(3), "LOCKSTEP_SIMD is \"mmx\", expected scalar, avx2, avx512, or neon");
}

}  // namespace
}  // namespace lockstep
