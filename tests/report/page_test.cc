#include "lockstep/report/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/sha256.h"
#include "lockstep/train/markup.h"
#include "lockstep/train/plot_panel.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Fails unless all elements are closed in order, all attributes are in double quotes, and no text has a bare < or &.
void expect_well_formed(const std::string& html) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < html.size(); ++at) {
    if (html[at] == '&') {
      const std::size_t end = html.find(';', at);
      ASSERT_TRUE(end != std::string::npos && end - at <= 6) << html.substr(at, 40);
    }
    if (html[at] != '<') continue;
    const std::size_t name_end = html.find_first_of(" >/", at + 2);
    const bool closes = html[at + 1] == '/';
    const std::string name = html.substr(at + (closes ? 2 : 1), name_end - at - (closes ? 2 : 1));
    bool quoted = false;
    std::size_t end = at + 1;
    for (; end < html.size() && (quoted || html[end] != '>'); ++end) {
      if (html[end] == '"') quoted = !quoted;
      ASSERT_NE(html[end], '<') << html.substr(at, 80);
    }
    ASSERT_LT(end, html.size());
    const bool is_empty = html[end - 1] == '/' || name == "meta" || name == "link" || name == "br" || name == "img";
    if (closes) {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), name) << html.substr(at, 80);
      open.pop_back();
    } else if (name != "!DOCTYPE" && !is_empty) {
      open.push_back(name);
    }
    at = end;
    if (!closes && (name == "script" || name == "style")) at = html.find("</" + name, at) - 1;
  }
  EXPECT_TRUE(open.empty());
}

// PageTexts that would break a page.
const std::string kBad = "<b>\"x\" & 'y'</b>\xff\xed\xa0\x80</script>";
const std::string kEscaped =
    "&lt;b&gt;&quot;x&quot; &amp; &#39;y&#39;&lt;/b&gt;\uFFFD\uFFFD\uFFFD\uFFFD&lt;/script&gt;";

ReportPage full_page() {
  ReportPage page{.title = kBad, .status = kBad};
  page.headline = {{kBad, kBad}};
  for (int i = 1; i <= 50; ++i) page.steps.push_back({i, 1 + i / 25, 1, 2.0 / i, 0.1 / i, 100});
  page.panels = {{{{.name = kBad, .points = {{1, 0.5}, {2, 0.75}}}}}};
  page.epochs = {
      {.epoch = 1, .train_loss = 1, .test = {1, 2}, .metrics = {{.name = kBad, .value = 3}}, .log = {{kBad, 4}}}};
  page.epochs[0].seconds = 2, page.epochs[0].data_seconds = 0.5;
  page.planned_epochs = 2;
  page.best_epoch = 1;
  PageResults results{.examples = 3, .of = 5, .confusion = {{2, 0}, {1, 0}}, .classes = {kBad, "\xfe"}};
  results.worst.push_back({.name = kBad,
                           .loss = 1,
                           .truth = kBad,
                           .predicted = kBad,
                           .picture = data_uri("image/png", "x"),
                           .inputs = {{kBad, kBad}},
                           .characters = {{"<", 5}, {"&", 0}}});
  page.results = results;
  PageTimeline timeline{.what = kBad, .seconds = 1, .hidden_communication = 0.5, .communication = 0.25};
  timeline.lanes = {{.name = kBad, .busy = 0.5, .tasks = 1, .spans = {{0, 0.5, 1}}}};
  timeline.operations = {{kBad, 3, 0.1}};
  page.timeline = timeline;
  page.layers = {{.name = "", .kind = kBad},
                 {.name = "a", .kind = "Sequential"},
                 {.name = "a.0", .kind = "Linear", .output = Shape{1, 3}, .parameters = 1234567, .state = "trainable"},
                 {.name = "ab", .kind = kBad}};
  page.recipe = page.hashes = page.machine = {{kBad, kBad}};
  page.command = kBad;
  page.data = R"({"text":"</script>"})";
  return page;
}

TEST(ReportPage, HoldsAnyTextsAndReferencesNothing) {
  const std::string html = report_html(full_page());
  expect_well_formed(html);
  EXPECT_THAT(html, HasSubstr("<h1>" + kEscaped + "</h1>"));
  EXPECT_THAT(html, Not(HasSubstr("<b>\"x\"")));
  EXPECT_EQ(html.find('\xff'), std::string::npos);
  for (std::size_t at = 0; (at = html.find_first_of("sh", at)) != std::string::npos; ++at) {
    for (const std::string_view name : {"src=\"", "href=\""}) {
      if (html.compare(at, name.size(), name) != 0) continue;
      EXPECT_EQ(html.substr(at + name.size(), 5), "data:");
    }
  }
  EXPECT_THAT(html, Not(HasSubstr("url(")));
  EXPECT_EQ(read_page_data(html), R"({"text":"\u003c/script>"})");
  EXPECT_THAT(html, HasSubstr("devices waited for data for at most 0.5 s, 25.0 % of the time"));
  // Boxes in boxes: a.0 is in a, ab is not.
  EXPECT_THAT(html,
              HasSubstr("<b>0</b> Linear<span>[1, 3]</span><span>1,234,567 parameters</span></div>\n</div></details>"));
  EXPECT_THAT(html, HasSubstr("<b>ab</b>"));
}

// A checkpoint of an older version does not know how long an epoch waited.
TEST(ReportPage, WaitsAreThoseOfEpochsThatHaveThem) {
  ReportPage page = full_page();
  page.epochs.push_back({.epoch = 2, .seconds = 50, .data_seconds = NAN});
  EXPECT_THAT(report_html(page), HasSubstr("devices waited for data for at most 0.5 s, 25.0 % of the time"));
}

TEST(ReportPage, SaysWhoseResultsItShows) {
  ReportPage page = full_page();
  EXPECT_THAT(report_html(page), HasSubstr("test examples, with the weights at the end of the run."));
  page.results->averaged = true;
  EXPECT_THAT(report_html(page), HasSubstr("test examples, with the average of the weights at the end of the run."));
}

// The policy has the hashes of what a browser takes from the page.
TEST(ReportPage, ItsPolicyAllowsItsOwnScriptAndStyleAlone) {
  const std::string html = report_html(full_page());
  const auto hash_of = [&](const std::string& name) {
    const std::size_t begin = html.find("<" + name + ">") + name.size() + 2, end = html.find("</" + name + ">", begin);
    Sha256 hash;
    hash.update(std::as_bytes(std::span(html.data() + begin, end - begin)));
    const std::string uri = data_uri("x", hash.digest());
    return "'sha256-" + uri.substr(uri.find(',') + 1) + "'";
  };
  EXPECT_THAT(html, HasSubstr(fmt::format("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                                          "script-src {}; style-src {}; style-src-attr 'unsafe-inline'; img-src data:; "
                                          "base-uri 'none'; form-action 'none'\">",
                                          hash_of("script"), hash_of("style"))));
}

TEST(ReportPage, ManyEpochsAreThinnedOut) {
  ReportPage page{.title = "a", .status = "b"};
  page.planned_epochs = 20'000;
  page.best_epoch = 12'347;
  page.panels = {{{{.name = "accuracy", .best = CurveBest::largest}}}};
  for (std::int64_t i = 1; i <= page.planned_epochs; ++i) {
    page.epochs.push_back({.epoch = i, .train_loss = 1});
    const double accuracy = i == page.best_epoch ? 0.9 : 0.5;
    page.panels[0].curves[0].points.push_back({static_cast<double>(i), i == 1 ? NAN : accuracy});
  }
  const std::string html = report_html(page);
  EXPECT_LT(html.size(), 250'000U);
  EXPECT_THAT(html, HasSubstr("best 0.9 in epoch 12347"));
  for (const char* row :
       {"<tr class=\"best\"><td>12347</td>", "<tr><td>20</td>", "<tr><td>20000</td>", "One of 20 epochs"})
    EXPECT_THAT(html, HasSubstr(row));
  EXPECT_THAT(html, Not(HasSubstr("<td>12348</td>")));
}

TEST(ReportPage, AnEmptyPageIsOne) {
  const std::string html = report_html({.title = "a", .status = "b"});
  expect_well_formed(html);
  EXPECT_THAT(html, Not(HasSubstr("<h2>")));
  EXPECT_EQ(read_page_data(html), "");
}

TEST(ReportPage, NumbersToPredictHaveAScatter) {
  ReportPage page;
  page.results = PageResults{.examples = 2, .of = 2};
  page.results->scatters = {{.name = kBad, .points = {{1, 2}, {3, NAN}, {3, 3}}}};
  page.results->worst = {{.name = "test example 0", .loss = 1, .truth = "1", .predicted = "2"}};
  const std::string html = report_html(page);
  expect_well_formed(html);
  EXPECT_THAT(html, HasSubstr("<b>2</b>, expected <b>1</b>"));
  EXPECT_EQ(html.find("nan"), std::string::npos);
  EXPECT_THAT(html, Not(HasSubstr("Confusion")));
}

// RFC 4648, section 10.
TEST(ReportPage, DataUrisAreBase64) {
  EXPECT_EQ(data_uri("a/b", ""), "data:a/b;base64,");
  EXPECT_EQ(data_uri("a/b", "f"), "data:a/b;base64,Zg==");
  EXPECT_EQ(data_uri("a/b", "fo"), "data:a/b;base64,Zm8=");
  EXPECT_EQ(data_uri("a/b", "foobar"), "data:a/b;base64,Zm9vYmFy");
  EXPECT_EQ(data_uri("a/b", "\xff\xef"), "data:a/b;base64,/+8=");
}

TEST(ReportPage, StepsAreJoinedToMeans) {
  PageStep sum{.count = 0};
  for (int i = 1; i <= 3; ++i) add_step(sum, {.step = i, .epoch = i, .count = i, .loss = static_cast<double>(i)});
  EXPECT_EQ(sum.step, 3);
  EXPECT_EQ(sum.count, 6);
  EXPECT_DOUBLE_EQ(sum.loss, (1 + 4 + 9) / 6.0);
}

TEST(Markup, KeepsUtf8AndReplacesTheRest) {
  EXPECT_EQ(escape_markup("ä€😀\n\t"), "ä€😀\n\t");
  EXPECT_EQ(escape_markup(std::string("a\0\x1f\x7f", 4)), "a   ");
  // Too long a form, a surrogate, beyond the last character, a lone continuation, and a cut one.
  EXPECT_EQ(escape_markup("\xc0\x80"), "\uFFFD\uFFFD");
  EXPECT_EQ(escape_markup("\xe0\x80\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(escape_markup("\xf4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(escape_markup("\x80<\xe2\x82"), "\uFFFD&lt;\uFFFD\uFFFD");
  EXPECT_EQ(escape_markup("\uFFFE\uFFFF\uFFFC"), "\uFFFD\uFFFD\uFFFC");
}

TEST(PlotPanel, ChoosesALogarithmicAxisForALargeRange) {
  const PlotPanel wide{{{.name = "loss", .points = {{1, 100}, {2, 0.5}}}}},
      narrow{{{.name = "loss", .points = {{1, 2}, {2, 1}}}}}, zero{{{.name = "loss", .points = {{1, 100}, {2, 0}}}}};
  EXPECT_THAT(panel_svg(wide, {.may_be_logarithmic = true}), HasSubstr(">10</text>"));
  EXPECT_THAT(panel_svg(wide, {.may_be_logarithmic = true}), HasSubstr(">1</text>"));
  EXPECT_THAT(panel_svg(wide), HasSubstr(">80</text>"));
  EXPECT_EQ(panel_svg(narrow, {.may_be_logarithmic = true}), panel_svg(narrow));
  EXPECT_EQ(panel_svg(zero, {.may_be_logarithmic = true}), panel_svg(zero));
  EXPECT_THAT(panel_svg(narrow), HasSubstr("data-name=\"loss\" data-x=\"1 2\" data-y=\"2 1\""));
}

}  // namespace
}  // namespace lockstep
