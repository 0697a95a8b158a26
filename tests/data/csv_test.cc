#include "lockstep/data/formats/csv.h"

#include <gtest/gtest.h>

#include <array>
#include <clocale>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tests/data/idx_files.h"
#include "tests/expect_error.h"
#include "tests/mutate.h"
#include "tests/process_limits.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

using CellRows = std::vector<std::vector<std::string>>;

CellRows cells_of(const Table& table) {
  CellRows rows;
  for (std::int64_t r = 0; r < table.rows(); ++r) {
    rows.emplace_back();
    for (std::int64_t c = 0; c < table.columns(); ++c) rows.back().emplace_back(table.cell(r, c));
  }
  return rows;
}

Table parse_table(const std::string& text, const CsvOptions& options = {}) { return parse_csv(text, "F", options); }

TEST(Csv, ReadsCellsOfEveryLineEnd) {
  for (const std::string end : {"\n", "\r\n", "\r"}) {
    const CellRows expected{{"1", "a"}, {"2", "b"}};
    EXPECT_EQ(cells_of(parse_table("1,a" + end + "2,b" + end)), expected);
    EXPECT_EQ(cells_of(parse_table("1,a" + end + "2,b")), expected) << "without an end of the last line";
    EXPECT_EQ(cells_of(parse_table("\xef\xbb\xbf" + end + "1,a" + end + end + "2,b" + end + end)), expected)
        << "mark, empty lines";
  }
}

TEST(Csv, ReadsQuotedCells) {
  const Table table = parse_table("1,\"a,\"\"b\"\"\nc\" ,\"\"\n 2 , \"\"\"\" ,d \" e\n", {.header = false});
  EXPECT_EQ(cells_of(table), (CellRows{{"1", "a,\"b\"\nc", ""}, {"2", "\"", "d \" e"}}));
  EXPECT_EQ(table.line(1), 3);  // a line end in a cell counts
  EXPECT_EQ(table.place(1, 2), "F: line 3, column 3");
}

TEST(Csv, FindsTheDelimiter) {
  EXPECT_EQ(parse_table("1,2\n3,4\n").delimiter(), ',');
  EXPECT_EQ(parse_table("1\t2,5\n3\t4,5\n").delimiter(), '\t');
  EXPECT_EQ(parse_table("1,5;2,5\n3,5;4,5\n").delimiter(), ';') << "decimal commas";
  EXPECT_EQ(parse_table("a;b,1\nc,2\n").delimiter(), ',') << "not in every row";
  EXPECT_EQ(parse_table("\"a;b\",1\n\"c;d\",2\n").delimiter(), ',') << "in quotes";
  EXPECT_EQ(cells_of(parse_table("1|2\n3|4\n", {.delimiter = '|'})), (CellRows{{"1", "2"}, {"3", "4"}}));
  EXPECT_EQ(parse_table("7\n8\n").columns(), 1);
}

TEST(Csv, FindsTheHeader) {
  const auto names = [](const std::string& text) { return parse_table(text).names(); };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names("x,kind\n1,a\n2,b\n"), (Names{"x", "kind"}));
  EXPECT_EQ(names("5.1,a\n4.9,b\n"), (Names{"1", "2"})) << "a number in the first row";
  EXPECT_EQ(names("a,b\nc,d\ne,f\n"), (Names{"a", "b"})) << "texts alone, none of which occurs below";
  EXPECT_EQ(names("a,b\nc,b\n"), (Names{"1", "2"})) << "b occurs below";
  EXPECT_EQ(names(",x,y\n0,1.5,a\n1,2.5,b\n"), (Names{"1", "x", "y"})) << "as pandas writes its index";
  EXPECT_EQ(names("0,1,2,kind\n5.1,3.5,1,a\n4.9,3.0,2,b\n"), (Names{"0", "1", "2", "kind"})) << "counted columns";
  EXPECT_EQ(parse_table("1,2\n3,4\n", {.header = true}).names(), (Names{"1", "2"}));
  EXPECT_EQ(parse_table("1,2\n3,4\n", {.header = true}).rows(), 1);
  EXPECT_EQ(parse_table("x,y\n1,2\n", {.header = false}).rows(), 2);
}

TEST(Csv, FindsColumnsByNameOrNumber) {
  const Table table = parse_table("x,2,kind\n1,1,a\n2,1,b\n", {.header = true});
  EXPECT_EQ(table.column("kind"), 2);
  EXPECT_EQ(table.column("1"), 0);
  EXPECT_EQ(table.column("2"), 1);
  EXPECT_ERROR(table.column("size"),
               "F: there is no column \"size\", expected \"x\", \"2\", \"kind\", or a number from 1 to 3");
  EXPECT_ERROR(table.column("4"), "no column \"4\"");
  EXPECT_ERROR(table.column("0"), "no column \"0\"");
}

TEST(Csv, NamesWhatIsWrong) {
  EXPECT_ERROR(parse_table(""), "F: empty, expected rows of cells");
  EXPECT_ERROR(parse_table("\xef\xbb\xbf\n \n"), "F: empty");
  EXPECT_ERROR(parse_table("x,y\n", {.header = true}), "F: has a header and no rows");
  EXPECT_ERROR(parse_table("x,y,x\n1,2,3\n", {.header = true}), "F: line 1: two columns have the name \"x\"");
  EXPECT_ERROR(parse_table("1,2\n\n3\n4,5\n"), "F: line 3 has 1 cell, expected 2 as in line 1 (delimiter: comma)");
  EXPECT_ERROR(parse_table("1,2\n3,4,5\n"), "F: line 2 has 3 cells, expected 2 as in line 1");
  EXPECT_ERROR(parse_table("1,2\n3,\"4\n5,6\n"), "F: line 2, column 2: a quote begins here and never ends");
  EXPECT_ERROR(parse_table("1,2\n3,\"4\"5\n"), "F: line 2, column 2: text follows a closing quote");
  EXPECT_ERROR(parse_table(std::string("1,\0\n", 4)), "F: byte 3 is NUL, expected a text");
  EXPECT_ERROR(parse_table("1\n", {.delimiter = '"'}), "csv: delimiter");
  TemporaryFolder folder;
  EXPECT_ERROR(read_csv(folder / "none.csv"), "cannot read " + (folder / "none.csv").string() + ": No such file");
  EXPECT_ERROR(read_csv(folder.path()), "it is a directory");
}

TEST(Csv, SkipsAndCountsBrokenRows) {
  const Table table = parse_table("1,2\n3\n\"4\"x,5\n6,7\n", {.skip_broken = true});
  EXPECT_EQ(cells_of(table), (CellRows{{"1", "2"}, {"6", "7"}}));
  EXPECT_EQ(table.skipped(), 2);
  EXPECT_EQ(table.line(1), 4);
}

TEST(Csv, MostRowsDecideTheWidthWhenBrokenOnesAreSkipped) {
  const std::string text = "Sales of 2025\n# exported\nx,y\n1,2\n3,4\n5,6\nTotal\n";
  EXPECT_ERROR(parse_table(text), "F: line 3 has 2 cells, expected 1 as in line 1");
  const Table table = parse_table(text, {.skip_broken = true});
  EXPECT_EQ(table.names(), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(cells_of(table), (CellRows{{"1", "2"}, {"3", "4"}, {"5", "6"}}));
  EXPECT_EQ(table.skipped(), 3);
  EXPECT_EQ(table.line(0), 4);
  // Of two that are as frequent, the earlier one.
  EXPECT_EQ(cells_of(parse_table("1,2\n3\n", {.skip_broken = true})), (CellRows{{"1", "2"}}));
  EXPECT_ERROR(parse_table("x,y,x\n1,2,3\n", {.header = true, .skip_broken = true}), "F: line 1: two columns");
  EXPECT_ERROR(parse_table("\"1\"x\n\"2\"x\n", {.skip_broken = true}), "F: no row without a flaw");
}

TEST(Csv, ReadsFilesGzippedOrNot) {
  TemporaryFolder folder;
  std::string text = "x,y\n";
  for (int i = 0; i < 300'000; ++i) text += std::to_string(i) + ",\"a\"\n";
  const Table plain = read_csv(folder.write("a.csv", text)), packed = read_csv(folder.write("a.csv.gz", gzip(text)));
  EXPECT_EQ(plain.rows(), 300'000);
  EXPECT_EQ(packed.rows(), 300'000);
  EXPECT_EQ(packed.cell(299'999, 0), "299999");
  EXPECT_EQ(plain.describe(), (folder / "a.csv").string() + ": CSV, comma, header, 300000 rows, 2 columns");
}

std::string repeated(std::string_view part, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i) text += part;
  return text;
}

TEST(Csv, ASmallGzippedFileTakesLittleMemory) {
  constexpr std::size_t kMegabyte = std::size_t{1} << 20;
  const TemporaryFolder folder;
  const std::pair<const char*, std::string> bombs[] = {
      {"text.csv.gz", repeated("1,2\n", 30 * kMegabyte)},              // the text alone
      {"cells.csv.gz", repeated("1,1,1,1,1,1,1\n", kMegabyte)},        // 8 bytes for each cell
      {"wide.csv.gz", repeated("1,", kMegabyte) + "1\n"},              // names of columns
      {"quote.csv.gz", "a,b\n\"" + std::string(90 * kMegabyte, 'x')},  // one cell
  };
  for (const auto& [name, text] : bombs) {
    const std::string file = folder.write(name, gzip(text));
    const MemoryLimit limit(rlim_t{100} << 20);
    EXPECT_ERROR(read_csv(file), fmt::format("bytes of memory, the limit for a file of {} bytes is 67108864; gunzip it "
                                             "first",
                                             std::filesystem::file_size(file)));
  }
  // Unpacked, it has the memory that it needs.
  EXPECT_EQ(read_csv(folder.write("cells.csv", repeated("1,1,1,1,1,1,1\n", kMegabyte))).rows(), kMegabyte);
}

TEST(Csv, NumbersAreWhatFromCharsReads) {
  const auto number = [](std::string_view cell) {
    const CellNumber parsed = parse_cell(cell);
    EXPECT_EQ(parsed.kind, CellKind::number) << cell;
    return parsed.value;
  };
  EXPECT_EQ(number("5"), 5);
  EXPECT_EQ(number("-0.5"), -0.5);
  EXPECT_EQ(number("+3"), 3);
  EXPECT_EQ(number(".5"), 0.5);
  EXPECT_EQ(number("5."), 5);
  EXPECT_EQ(number("1e-3"), 1e-3);
  EXPECT_EQ(number("1E+3"), 1000);
  EXPECT_EQ(number("0.1"), 0.1);
  EXPECT_EQ(number("1e-400"), 0) << "too small rounds to 0";
  EXPECT_EQ(number("0.0000000001e-400"), 0);
  EXPECT_EQ(number("1.7976931348623157e308"), 1.7976931348623157e308);
  for (const char* cell : {"", "NA", "n/a", "NaN", "-nan", "NULL", "None", "?", "#N/A", "<NA>"}) {
    EXPECT_EQ(parse_cell(cell).kind, CellKind::missing) << cell;
  }
  for (const char* cell : {"inf", "-Infinity", "+INF", "1e400", "-1e400", "1e99999999999999999999", "0.001e999"}) {
    EXPECT_EQ(parse_cell(cell).kind, CellKind::not_finite) << cell;
  }
  for (const char* cell :
       {"0x10", "1,5", "1_000", "12 kg", "nan(1)", "-", "+", ".", "e5", "--1", "+-1", "1e", "infinit", "1 2"}) {
    EXPECT_EQ(parse_cell(cell).kind, CellKind::text) << cell;
  }
}

TEST(Csv, TheLocaleChangesNothing) {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  for (const char* locale : {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8"}) {
    if (std::setlocale(LC_ALL, locale)) break;  // where one is installed
  }
  EXPECT_EQ(parse_cell("1.5").value, 1.5);
  EXPECT_EQ(parse_cell("1,5").kind, CellKind::text);
  std::setlocale(LC_ALL, before.c_str());
}

// LOCKSTEP_FUZZ_ROUNDS sets another number of rounds.
TEST(CsvFuzz, DamagedFilesAreReadOrRefused) {
  constexpr std::array<std::string_view, 22> kCsvPieces{",",   ";",    "\t",  "\"",  "\"\"", "\n",   "\r\n",  "\r",
                                                        " ",   "NA",   "inf", "1e",  "e9",   "-0.5", "1e400", "0x1",
                                                        "\0x", "\xef", "a,b", "\"a", "?",    ".5"};
  const std::string valid =
      "id;size,\"the \"\"name\"\"\",kind\n1,2.5,\"a,b\",x\n2,-3e4,\"c\nd\",y\n\n3,NA, \"\" ,x\r\n4,+5,e,?\n";
  const char* const variable = std::getenv("LOCKSTEP_FUZZ_ROUNDS");
  const int rounds = variable ? std::atoi(variable) : 5000;
  int read = 0, refused = 0;
  for (int round = 0; round < rounds; ++round) {
    Dice dice(static_cast<std::uint64_t>(round));
    const std::string text = mutated(valid, dice, {.pieces = kCsvPieces});
    const CsvOptions options{.skip_broken = dice.below(4) == 0};
    try {
      const Table table = parse_csv(text, "fuzz", options);
      std::size_t bytes = 0;
      for (std::int64_t r = 0; r < table.rows(); ++r) {
        for (std::int64_t c = 0; c < table.columns(); ++c) {
          bytes += table.cell(r, c).size();
          parse_cell(table.cell(r, c));
        }
      }
      EXPECT_LE(bytes, text.size());
      ++read;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with("fuzz: ")) << error.what();
      EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(read, rounds / 20);
  EXPECT_GT(refused, rounds / 20);
}

}  // namespace
}  // namespace lockstep
