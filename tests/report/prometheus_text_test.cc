#include "lockstep/report/prometheus_text.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/report/prometheus_reader.h"

namespace lockstep {
namespace {

TEST(PrometheusText, HoldsAnyLabelAndNumber) {
  const std::string text = prometheus_text(
      {{"a_total", "Of \\ and\nlines.", true, {{{{"device", "c\"p\\u\n\xff"}, {"rank", "0"}}, 1e21}, {{}, 3}}},
       {"empty", "", false, {}},
       {"b", "", false, {{{}, NAN}, {{{"x", ""}}, -INFINITY}, {{{"x", "1"}}, 0.1}}}});
  const PrometheusReader read(text);
  EXPECT_EQ(read.types.at("a_total"), "counter");
  EXPECT_EQ(read.types.at("b"), "gauge");
  EXPECT_FALSE(read.types.contains("empty"));
  EXPECT_EQ(read.help.at("a_total"), "Of \\ and\nlines.");
  const PrometheusReader::Labels labels{{"device", "c\"p\\u\n\uFFFD"}, {"rank", "0"}};
  EXPECT_EQ(read.samples.at({"a_total", labels}), 1e21);
  EXPECT_EQ(read.samples.at({"a_total", {}}), 3);
  EXPECT_TRUE(std::isnan(read.samples.at({"b", {}})));
  EXPECT_EQ(read.samples.at({"b", {{"x", ""}}}), -INFINITY);
  EXPECT_EQ(read.samples.at({"b", {{"x", "1"}}}), 0.1);
}

TEST(PrometheusReader, FindsWhatTheFormatDoesNotAllow) {
  for (const char* wrong : {"a 1", "a\n", "1a 1\n", "a{b=c} 1\n", "a{b=\"c} 1\n", "a{b=\"\\x\"} 1\n", "a 1\na 1\n",
                            "a x\n", "# TYPE a wrong\n", "a 1\n# TYPE a gauge\n", "# TYPE a gauge\n# TYPE a gauge\n",
                            "a 1\nb 1\na{c=\"d\"} 1\n", "a  1\n", "\n a 1\n"}) {
    EXPECT_THROW(PrometheusReader{wrong}, std::runtime_error) << wrong;
  }
}

}  // namespace
}  // namespace lockstep
