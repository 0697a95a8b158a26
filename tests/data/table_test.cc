#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "lockstep/data/files_digest.h"
#include "lockstep/data/hash_split.h"
#include "lockstep/data/table_dataset.h"
#include "lockstep/data/table_schema.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

using Floats = std::vector<float>;
using Texts = std::vector<std::string>;

SplitRows all_for_training(const Table& table) { return split_rows(table, 0); }

TableSchema schema_of(const Table& table, const TableSchemaOptions& options = {}) {
  return make_table_schema(table, all_for_training(table), options);
}

TableSchema schema_of(const std::string& text, const TableSchemaOptions& options = {}) {
  return schema_of(parse_csv(text, "F"), options);
}

Floats encoded(const Table& table, const TableSchema& schema, std::int64_t row, Unseen unseen = Unseen::error) {
  Floats out(static_cast<std::size_t>(schema.features()));
  TableEncoder(table, schema, unseen).encode(row, out);
  return out;
}

constexpr const char* kSizes = "size,color,kind\n1,red,b\n3,blue,a\n,NA,b\n5,red,a\n";

TEST(TableSchema, NormalizesNumbersAndCountsCategories) {
  const Table table = parse_csv(kSizes, "F");
  const TableSchema schema = schema_of(table);
  ASSERT_EQ(schema.columns.size(), 2u);
  const TableColumn& size = schema.columns[0];
  EXPECT_EQ(size.mean, 3);
  EXPECT_EQ(size.stddev, std::sqrt(8.0 / 3));  // of the population, as scikit-learn's StandardScaler
  EXPECT_TRUE(size.missing);
  EXPECT_EQ(schema.columns[1].categories, (Texts{"blue", "red"}));
  EXPECT_TRUE(schema.columns[1].missing);
  EXPECT_EQ(schema.classes, (Texts{"a", "b"}));
  EXPECT_EQ(schema.target, "kind");
  EXPECT_EQ(schema.number_features(), 2);
  EXPECT_EQ(schema.vocabularies(), (std::vector<std::int64_t>{3}));
  const auto one = static_cast<float>(2 / std::sqrt(8.0 / 3));
  EXPECT_EQ(encoded(table, schema, 0), (Floats{-one, 0, 2}));
  EXPECT_EQ(encoded(table, schema, 1), (Floats{0, 0, 1}));
  EXPECT_EQ(encoded(table, schema, 2), (Floats{0, 1, 0})) << "missing";
  EXPECT_EQ(TableEncoder(table, schema).label(1), 0);
}

TEST(TableSchema, StatisticsComeFromTrainingRowsAlone) {
  const Table table = parse_csv("x,c,y\n1,a,p\n3,a,q\n100,b,p\n,a,q\n", "F");
  const TableSchema schema = make_table_schema(table, {.train = {0, 1}, .validation = {2, 3}});
  EXPECT_EQ(schema.columns[0].mean, 2);
  EXPECT_FALSE(schema.columns[0].missing);
  EXPECT_EQ(schema.columns[1].categories, (Texts{"a"}));
  EXPECT_EQ(encoded(table, schema, 2, Unseen::as_missing), (Floats{98, 0}));
  EXPECT_ERROR(encoded(table, schema, 2),
               "F: line 4, column 2 (c): \"b\" is none of the 1 categories of training rows");
  EXPECT_ERROR(encoded(table, schema, 3),
               "F: line 5, column 1 (x): the cell is missing (\"\"), and none was in training");
  const TableDataset data(table, schema, Unseen::as_missing);
  EXPECT_EQ(data.unseen(), 2);
}

TEST(TableSchema, ConstantColumnsAreZeros) {
  const Table table = parse_csv("x,y\n0.1,a\n0.1,b\n0.1,a\n", "F");
  const TableSchema schema = schema_of(table);
  EXPECT_EQ(schema.columns[0].stddev, 1);
  for (int row = 0; row < 3; ++row) EXPECT_EQ(encoded(table, schema, row), (Floats{0}));
}

TEST(TableSchema, DecidesTheTaskByTheTarget) {
  std::string few, many, fractions;
  for (int i = 0; i < 100; ++i) {
    few += "1.5," + std::to_string(i % 20) + '\n';
    many += "1.5," + std::to_string(i % 21) + '\n';
    fractions += "1.5," + std::to_string(i % 3) + ".5\n";
  }
  const TableSchema whole = schema_of(few);
  EXPECT_EQ(whole.task, TaskKind::classification);
  EXPECT_EQ(whole.reason, "the target has 20 whole numbers");
  EXPECT_EQ(whole.classes[9], "9") << "in the order of numbers";
  EXPECT_EQ(whole.classes[10], "10");
  EXPECT_EQ(schema_of(many).task, TaskKind::regression);
  EXPECT_EQ(schema_of(fractions).task, TaskKind::regression);
  EXPECT_EQ(schema_of(few, {.task = TaskKind::regression}).task, TaskKind::regression);
  EXPECT_EQ(schema_of(fractions, {.task = TaskKind::classification}).classes, (Texts{"0.5", "1.5", "2.5"}));
}

TEST(TableSchema, NormalizesTheTargetOfARegression) {
  const Table table = parse_csv("x,y\n1,10.5\n2,20.5\n3,30.5\n", "F");
  const TableSchema schema = schema_of(table);
  EXPECT_EQ(schema.task, TaskKind::regression);
  EXPECT_EQ(schema.target_mean, 20.5);
  EXPECT_EQ(TableEncoder(table, schema).target(2), static_cast<float>(10 / std::sqrt(200.0 / 3)));
  const TableDataset data(table, schema);
  EXPECT_EQ(data.get(1)[1].shape(), (Shape{1}));
  EXPECT_EQ(data.get(1)[1].item(), 0);
}

TEST(TableSchema, LeavesOutWhatNoModelCanUse) {
  std::string text = ",name,empty,x,kind\n";
  for (int i = 0; i < 30; ++i) text += fmt::format("{0},n{0},,{1},{2}\n", i, i * i % 7, i % 2 ? "a" : "b");
  const TableSchema schema = schema_of(text);
  ASSERT_EQ(schema.columns.size(), 1u);
  EXPECT_EQ(schema.columns[0].name, "x");
  EXPECT_EQ(schema.left_out, "\"1\" (row numbers), \"name\" (all texts differ), \"empty\" (no cells)");
  EXPECT_EQ(schema_of(text, {.categories = {"name"}}).columns.size(), 2u);
  EXPECT_ERROR(schema_of(text, {.ignore = {"x"}}),
               "expected one beside the target \"kind\" that a model can use; left out");
}

TEST(TableSchema, TakesATargetByNameOrNumber) {
  EXPECT_EQ(schema_of("size,color,kind\n1,red,b\n3,blue,a\n", {.target = "color", .ignore = {"1"}}).columns[0].name,
            "kind");
  EXPECT_ERROR(schema_of(kSizes, {.target = "colour"}), "F: there is no column \"colour\"");
  EXPECT_ERROR(schema_of(kSizes, {.ignore = {"kind"}}), "the target \"kind\" is one of the columns to ignore");
}

TEST(TableSchema, NamesWhatIsWrong) {
  std::string numbers = "x,y\n";
  for (int i = 0; i < 10; ++i) numbers += fmt::format("{}.5,{}\n", i, i % 2 ? "a" : "b");
  EXPECT_ERROR(
      schema_of(numbers + "n.5,a\n"),
      "F: line 12, column 1 (x): \"n.5\" is not a number, expected one, as in 10 of the column's 11 cells (or name "
      "the column in `categories`)");
  EXPECT_EQ(schema_of(numbers + "n.5,a\n", {.categories = {"x"}}).columns[0].categories.size(), 11u);
  EXPECT_ERROR(schema_of(numbers + "inf,a\n"), "F: line 12, column 1 (x): \"inf\" is not finite in f64");
  EXPECT_ERROR(schema_of(numbers + "1e400,a\n"), "\"1e400\" is not finite in f64");
  EXPECT_ERROR(schema_of("x;y\n1,5;a\n2;b\n"),
               "F: line 2, column 1 (x): \"1,5\" has a comma, a decimal one or between thousands");
  EXPECT_ERROR(schema_of("a,b,y,\n1,2,p,\n3,4,q,\n"), "F: the target, \"4\", has no cells, as where each line ends");
  EXPECT_ERROR(schema_of("a|y\n1|p\n2|q\n"), "F: 1 column, \"a|y\": expected the target and another one");
  EXPECT_ERROR(schema_of("x,y\n1,a\n2,\n3,b\n"), "F: line 3, column 2 (y): the target is missing (\"\") in 1 row");
  EXPECT_ERROR(schema_of("x,y\n1,a\n2,a\n"),
               "F: column \"y\": the target is \"a\" in every row, expected at least two classes");
  EXPECT_ERROR(schema_of("x,y\n1,5\n2,5\n3,5\n", {.task = TaskKind::regression}), "the target is \"5\" in every row");
  EXPECT_ERROR(schema_of("x,y\n1,a\n2,b\n", {.task = TaskKind::regression}), "\"a\" is not a number");
  EXPECT_ERROR(schema_of("a\nb\nc\n", {}), "1 column, \"a\": expected the target and another one");
  EXPECT_ERROR(schema_of("x,y\n-1e308,a\n1e308,b\n1.5e308,a\n"), "have no mean and standard deviation in f64");
  std::string ids = "x,id\n";
  for (int i = 0; i < 30; ++i) ids += fmt::format("1.5,n{}\n", i);
  EXPECT_ERROR(schema_of(ids),
               "the target has 30 different values in 30 rows, expected classes that occur twice or more");
}

TEST(TableEncoder, EncodesOtherTablesByTheirNames) {
  const TableSchema schema = schema_of(kSizes);
  const Table other = parse_csv("color,extra,size\nblue,7,5\n", "G", {.header = true});
  const TableEncoder encoder(other, schema);
  EXPECT_FALSE(encoder.has_target());
  EXPECT_EQ(encoded(other, schema, 0)[2], 1);
  EXPECT_ERROR(encoder.label(0), "G: there is no column \"kind\", the target");
  EXPECT_ERROR(TableEncoder(parse_csv("color\nred\n", "G", {.header = true}), schema),
               "G: there is no column \"size\"");
  const Table text = parse_csv("size,color\nlarge,red\n", "G", {.header = true});
  EXPECT_ERROR(encoded(text, schema, 0), "G: line 2, column 1 (size): \"large\" is not a finite number");
  const Table label = parse_csv("size,color,kind\n1,red,c\n", "G", {.header = true});
  EXPECT_ERROR(TableEncoder(label, schema).label(0),
               "G: line 2, column 3 (kind): the target is \"c\", expected one of the 2");
}

TEST(TableEncoder, ColumnsWithoutNamesDoNotMove) {
  // Column 2 is the target, column 3 is not used: in a table without the target, column 3 would be the old 4.
  const TableSchema middle =
      schema_of(parse_csv("1,a,9,5\n2,b,8,6\n", "F", {.header = false}), {.target = "2", .ignore = {"4"}});
  EXPECT_ERROR(TableEncoder(parse_csv("1,9,5\n", "G", {.header = false}), middle),
               "G: 3 columns without names, expected 4, the target in column 2, which may be empty, too");
  EXPECT_EQ(TableDataset(parse_csv("2,,9,0\n", "G", {.header = false}), middle, Unseen::error, false).size(), 1);
  const TableSchema last = schema_of(parse_csv("1,9,a\n2,8,b\n", "F", {.header = false}));
  EXPECT_FALSE(TableEncoder(parse_csv("1,9\n", "G", {.header = false}), last).has_target());
  EXPECT_ERROR(TableEncoder(parse_csv("1,9,a,7\n", "G", {.header = false}), last),
               "G: 4 columns without names, expected 3, or 2 without the target");
}

TEST(TableDataset, LabelsAreLeftOutOnRequest) {
  const TableSchema schema = schema_of(kSizes);
  const Table open = parse_csv("size,color,kind\n1,red,?\n1,red,new\n", "G");
  EXPECT_ERROR(TableDataset(open, schema), "the target is \"?\", expected one of the 2 classes");
  const TableDataset data(open, schema, Unseen::error, false);
  EXPECT_FALSE(data.labeled());
  EXPECT_EQ(data.get(1).size(), 1u);
}

TEST(TableSchema, NumbersOfClassesAreToldApart) {
  const TableSchema zeros = schema_of("a,k\n1,-0\n2,1\n3,0\n", {.task = TaskKind::classification});
  EXPECT_EQ(zeros.classes, (Texts{"-0", "0", "1"}));
  const Table table = parse_csv("a,k\n1,9007199254740993\n2,9007199254740992\n", "F");
  const TableSchema large = schema_of(table, {.task = TaskKind::classification});
  EXPECT_EQ(large.classes, (Texts{"9007199254740992", "9007199254740993"}));
  EXPECT_EQ(TableEncoder(table, large).label(0), 1);
}

TEST(TableSchema, ClassesKeepTheirTexts) {
  const auto repeated = [](std::initializer_list<const char*> labels) {
    std::string text = "a,k\n";
    for (int i = 0; i < 12; ++i) {
      for (const char* label : labels) text += fmt::format("{},{}\n", i, label);
    }
    return text;
  };
  const TableSchema codes = schema_of(repeated({"7", "007", "42"}));
  EXPECT_EQ(codes.task, TaskKind::classification);
  EXPECT_EQ(codes.classes, (Texts{"007", "7", "42"}));
  const Table other = parse_csv("a,k\n1,7\n1,007\n1,07\n1,42.0\n", "G");
  EXPECT_EQ(TableEncoder(other, codes).label(0), 1);
  EXPECT_EQ(TableEncoder(other, codes).label(1), 0);
  EXPECT_ERROR(TableEncoder(other, codes).label(2), "the target is \"07\", expected one of the 3 classes");
  EXPECT_ERROR(TableEncoder(other, codes).label(3), "expected one of the 3 classes");
  const TableSchema versions = schema_of(repeated({"1.1", "1.10", "1.2"}), {.task = TaskKind::classification});
  EXPECT_EQ(versions.classes, (Texts{"1.1", "1.10", "1.2"}));
  // Beyond 2^53, also without the task.
  const TableSchema ids = schema_of(repeated({"900719925474099267", "900719925474099268"}));
  EXPECT_EQ(ids.task, TaskKind::classification);
  EXPECT_EQ(ids.classes, (Texts{"900719925474099267", "900719925474099268"}));
  EXPECT_ERROR(schema_of(repeated({"900719925474099267", "900719925474099268"}), {.task = TaskKind::regression}),
               "\"900719925474099267\" and \"900719925474099268\", which are one number in f64");
  // Whole numbers that another program writes with a point.
  const TableSchema whole = schema_of(repeated({"0", "1"}));
  const Table points = parse_csv("a,k\n1,1.0\n1,01\n", "G");
  EXPECT_EQ(TableEncoder(points, whole).label(0), 1);
  EXPECT_ERROR(TableEncoder(points, whole).label(1), "the target is \"01\"");
}

TEST(TableDataset, BatchesAreItsExamples) {
  const Table table = parse_csv(kSizes, "F");
  const TableSchema schema = schema_of(table);
  const TableDataset data(table, schema, std::vector<std::int64_t>{3, 0});
  EXPECT_EQ(data.size(), 2);
  const std::vector<std::int64_t> indices{1, 0};
  const Example batch = data.batch(indices, std::vector<RandomKey>(2));
  EXPECT_EQ(batch[0].shape(), (Shape{2, 3}));
  EXPECT_EQ(batch[1].to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(data.get(1)[0].to_vector<float>(), encoded(table, schema, 0));
  EXPECT_EQ(data.get(1)[1].shape(), Shape{});
  EXPECT_ERROR(data.get(2), "example 2 is out of range [0, 2)");
}

TEST(HashSplit, MembershipDoesNotDependOnOthers) {
  int validation = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::string name = fmt::format("cats/{}.jpg", i);
    validation += in_validation(name, 0.1) ? 1 : 0;
    EXPECT_LE(in_validation(name, 0.1), in_validation(name, 0.2)) << "a larger share only adds";
  }
  EXPECT_NEAR(validation, 1000, 100);
  // SHA-256 of "abc" begins with ba7816bf: 0.7284.
  EXPECT_FALSE(in_validation("abc", 0.728));
  EXPECT_TRUE(in_validation("abc", 0.729));
  EXPECT_FALSE(in_validation("abc", 0));
  EXPECT_ERROR(in_validation("abc", 1), "a share of 1 for validation, expected at least 0 and below 1");

  const auto texts = [](const Table& table, const std::vector<std::int64_t>& rows) {
    std::set<std::string> found;
    for (const std::int64_t row : rows) found.emplace(table.cell(row, 0));
    return found;
  };
  std::string text = "x,y\n";
  for (int i = 0; i < 100; ++i) text += fmt::format("{}.5,a\n", i);
  const Table before = parse_csv(text, "F"), after = parse_csv(text.insert(4, "-1.5,b\n-2.5,b\n") + "-3.5,b\n", "F");
  const auto old_rows = texts(before, split_rows(before, 0.3).validation);
  const auto new_rows = texts(after, split_rows(after, 0.3).validation);
  EXPECT_TRUE(std::ranges::includes(new_rows, old_rows));
  EXPECT_LE(new_rows.size(), old_rows.size() + 3);
}

TEST(DataDigest, CoversNamesSizesAndOnRequestContents) {
  TemporaryFolder folder;
  const std::vector<std::filesystem::path> files{folder.write("b/1", "xy"), folder.write("a", "z")};
  const std::string digest = files_digest(folder.path(), files),
                    all = files_digest(folder.path(), files, {.contents = true});
  EXPECT_EQ(digest.size(), 64u);
  EXPECT_EQ(files_digest(folder.path(), {files[1], files[0]}), digest) << "in any order";
  EXPECT_NE(all, digest);
  folder.write("a", "Z");
  EXPECT_EQ(files_digest(folder.path(), files), digest);
  EXPECT_NE(files_digest(folder.path(), files, {.contents = true}), all);
  folder.write("a", "zz");
  EXPECT_NE(files_digest(folder.path(), files), digest);
  EXPECT_NE(files_digest(folder.path(), {files[0]}), digest);
  EXPECT_ERROR(files_digest(folder.path(), {folder / "none"}), "cannot read");
}

}  // namespace
}  // namespace lockstep
