#include "lockstep/task/data_source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "lockstep/autograd/functions.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/optim/adam.h"
#include "lockstep/train/trainer.h"
#include "tests/data/idx_files.h"
#include "tests/data/npy_writing.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

// Flowers: the kind follows from two numbers and a color.
std::string flowers(int count, bool regression = false) {
  std::string text = "length,color,width,kind\n";
  for (int i = 0; i < count; ++i) {
    const int a = i * 37 % 100, b = i * 61 % 97, c = i % 3;
    const int kind = c == 2 ? 2 : a > 50 ? 1 : 0;
    text += fmt::format("{}.5,{},{},", a,
                        c == 0   ? "red"
                        : c == 1 ? "blue"
                                 : "white",
                        i % 17 == 0 ? "" : std::to_string(b));
    text += regression ? fmt::format("{}\n", a * 3 + c * 40 + 0.25) : fmt::format("k{}\n", kind);
  }
  return text;
}

TEST(OpenData, ATableSaysWhatItIs) {
  TemporaryFolder folder;
  const auto path = folder.write("flowers.csv", flowers(300));
  const DataSource data = open_data(path);
  EXPECT_EQ(data.schema.format, DataFormat::csv);
  EXPECT_EQ(data.schema.task, TaskKind::classification);
  EXPECT_EQ(data.schema.input, (std::vector<std::int64_t>{4}));
  EXPECT_EQ(data.schema.outputs, 3);
  EXPECT_EQ(data.train->size() + data.validation->size(), 300);
  EXPECT_EQ(data.train_counts[2] + data.validation_counts[2], 100);
  EXPECT_TRUE(data.digest_covers_contents);
  EXPECT_EQ(data.description,
            fmt::format(
                "{}: CSV, comma, header, 300 rows, 4 columns; classification of column kind (the target has 3 texts): "
                "k0 102, k1 98, k2 100; columns used: 2 numbers, 1 category; {} to train, {} to validate",
                path.string(), data.train->size(), data.validation->size()));
}

TEST(OpenData, SplitsAsValSplitSays) {
  TemporaryFolder folder;
  const auto path = folder.write("flowers.csv", flowers(300));
  EXPECT_EQ(open_data(path, {.val_split = 0}).validation, nullptr);
  EXPECT_NEAR(static_cast<double>(open_data(path, {.val_split = 0.5}).validation->size()), 150, 40);
  EXPECT_ERROR(open_data(folder.write("few.csv", "x,y\n1,a\n2,b\n"), {.val_split = 0.001}),
               "2 examples, none of which val_split = 0.001 takes for validation");
  EXPECT_ERROR(open_data(path, {.val_split = 1}), "val_split is 1, expected at least 0 and below 1");
}

TEST(OpenData, SkipsAndCountsBrokenRows) {
  TemporaryFolder folder;
  const auto path = folder.write("flowers.csv", flowers(100) + "1,red\n2,red,3,\n");
  EXPECT_ERROR(open_data(path), "line 102 has 2 cells, expected 4");
  const DataSource data = open_data(path, {.skip_broken = true});
  EXPECT_EQ(data.skipped, 2);
  EXPECT_EQ(data.train->size() + data.validation->size(), 100);
  EXPECT_NE(data.description.find("; skipped: 2 broken rows"), std::string::npos) << data.description;
  EXPECT_EQ(data.validation_name(0).substr(0, 5), "line ");
}

TEST(OpenData, SkipsAndCountsDamagedNumbers) {
  TemporaryFolder folder;
  std::string text = "x,c,y\n";
  for (int i = 0; i < 60; ++i) text += fmt::format("{},{},{}\n", i % 7, i % 2 == 0 ? "a" : "5", 0.25 * i);
  const auto clean = folder.write("clean.csv", text);
  const auto path = folder.write("t.csv", text + "#REF!,a,1\ninf,a,2\nx,c,y\n1,b,1e400\n");
  EXPECT_ERROR(open_data(path, {.val_split = 0}), "\"y\" is not a number, expected one, as in 62 of the column's 64");
  EXPECT_ERROR(open_data(path, {.val_split = 0}),
               "; the line repeats the name of the column; skip_broken leaves such rows out");
  const DataSource data = open_data(path, {.val_split = 0, .skip_broken = true});
  EXPECT_EQ(data.skipped, 4);
  EXPECT_EQ(data.train->size(), 60);
  EXPECT_NE(data.description.find("; skipped: 4 broken rows, of which 4 have a damaged number: \"#REF!\" in line 62, "
                                  "\"inf\" in line 63, \"x\" in line 64, ..."),
            std::string::npos)
      << data.description;
  // The rest is what it is without these rows: a text among categories is not damaged.
  EXPECT_EQ(data.schema.table->columns, open_data(clean, {.val_split = 0}).schema.table->columns);
  // In new rows, too: cells of the target count where there are labels.
  EXPECT_ERROR(open_examples(path, data.schema), "\"#REF!\" is not a finite number");
  const DataExamples labeled = open_examples(path, data.schema, {.unseen = Unseen::as_missing, .skip_broken = true});
  EXPECT_EQ(labeled.skipped, 4);
  EXPECT_EQ(labeled.data->size(), 60);
  const DataExamples rows =
      open_examples(path, data.schema, {.unseen = Unseen::as_missing, .skip_broken = true, .labels = false});
  EXPECT_EQ(rows.skipped, 3);
  EXPECT_EQ(rows.names.back(), "64") << "the row that it is in the file";
  EXPECT_ERROR(open_examples(folder.write("o.csv", "x,c\noops,a\n"), data.schema, {.skip_broken = true}),
               "no row is left: each has a damaged number, such as \"oops\" in line 2");
  // Columns that are declared or not used have no damaged numbers.
  EXPECT_EQ(open_data(path, {.ignore = {"x"}, .val_split = 0, .skip_broken = true}).skipped, 2);
  EXPECT_EQ(open_data(path, {.categories = {"x"}, .val_split = 0, .skip_broken = true}).skipped, 2);
}

TEST(OpenData, SaysThatNoneIsNoClass) {
  TemporaryFolder folder;
  std::string text = "x,k\n1,none\n2,NA\n3,none\n";
  for (int i = 0; i < 20; ++i) text += i % 2 == 0 ? "1,a\n" : "2,b\n";
  const auto path = folder.write("t.csv", text);
  EXPECT_ERROR(open_data(path, {.val_split = 0}), "leaves such rows out; a class needs another name");
  const DataSource data = open_data(path, {.val_split = 0, .skip_broken = true});
  EXPECT_EQ(data.skipped, 3);
  EXPECT_NE(data.description.find("; skipped: 3 broken rows, of which 3 have a missing target, not a class: \"NA\", "
                                  "\"none\""),
            std::string::npos)
      << data.description;
  EXPECT_ERROR(open_examples(path, data.schema), "line 2");
  const DataExamples rest = open_examples(path, data.schema, {.skip_broken = true});
  EXPECT_EQ(rest.skipped, 3);
  EXPECT_EQ(rest.data->size(), 20);
  EXPECT_EQ(rest.names[0], "4") << "the row that it is in the file";
  EXPECT_EQ(open_examples(path, data.schema, {.skip_broken = true, .labels = false}).data->size(), 23);
  EXPECT_ERROR(open_examples(folder.write("n.csv", "x,k\n1,none\n"), data.schema, {.skip_broken = true}),
               "no row is left: the target is missing in all 1");
}

TEST(OpenData, LearnsATable) {
  TemporaryFolder folder;
  const DataSource data = open_data(folder.write("flowers.csv", flowers(400)), {.val_split = 0.25});
  TableMlp net([&] {
    TableMlpOptions options = table_mlp_options(data.schema);
    options.hidden = {32};
    return options;
  }());
  Adam adam(net.parameters(), {.lr = 0.01});
  Trainer trainer(
      net, adam, data.train, data.validation,
      {.batch_size = 64, .epochs = 15, .loss = task_loss(data.schema), .metrics = task_metrics(data.schema)});
  double accuracy = 0;
  trainer.on_epoch = [&](const EpochReport& report) { accuracy = metric_named(report.metrics, "accuracy").value; };
  trainer.train();
  EXPECT_GT(accuracy, 0.9);
}

TEST(OpenData, MeasuresARegressionInItsUnits) {
  TemporaryFolder folder;
  const DataSource data = open_data(folder.write("flowers.csv", flowers(400, true)), {.val_split = 0.25});
  EXPECT_EQ(data.schema.task, TaskKind::regression);
  const std::vector<Metric> metrics = task_metrics(data.schema);
  const Tensor outputs = Tensor::from({0.0f, 1.0f}, {2, 1}), targets = Tensor::from({0.5f, 1.0f}, {2, 1});
  const double stddev = data.schema.target_stddev[0];
  EXPECT_NEAR(metrics[0].values(outputs, targets).to_vector<float>()[0], 0.5 * stddev, 1e-3);
  EXPECT_NEAR(metrics[1].values(outputs, targets).to_vector<float>()[0], 0.25 * stddev * stddev, 1e-1);
  EXPECT_EQ(task_loss(data.schema)(outputs, targets).item(), 0.125f);
}

TEST(OpenData, ReadsArrays) {
  TemporaryFolder folder;
  std::string pixels;
  std::vector<std::int64_t> kinds;
  for (int i = 0; i < 40; ++i) {
    pixels += std::string(12, static_cast<char>(i * 6));
    kinds.push_back(i % 2);
  }
  const std::string x = npy("|u1", "(40, 3, 4)", pixels), y = npy("<i8", "(40,)", bytes_of(kinds));
  const auto npz = folder.write("a.npz", zip({{"x.npy", x}, {"y.npy", y}}, true));
  const DataSource packed = open_data(npz);
  EXPECT_EQ(packed.schema.input, (std::vector<std::int64_t>{1, 3, 4}));
  EXPECT_EQ(packed.train->size() + packed.validation->size(), 40);
  EXPECT_NE(
      packed.description.find(": npy, x u8 [40, 3, 4], y i64 [40], examples [1, 3, 4], divided by 255; classification "
                              "(the labels are 2 whole numbers): 0 20, 1 20; "),
      std::string::npos)
      << packed.description;
  EXPECT_TRUE(packed.digest_covers_contents);

  folder.write("folder/x_train.npy", x);
  folder.write("folder/y_train.npy", y);
  folder.write("folder/x_test.npy", npy("|u1", "(1, 3, 4)", std::string(12, '\xff')));
  folder.write("folder/y_test.npy", npy("<i8", "(1,)", bytes_of<std::int64_t>({1})));
  const DataSource parts = open_data(folder / "folder");
  EXPECT_EQ(parts.train->size(), 40);
  EXPECT_EQ(parts.validation->size(), 1);
  EXPECT_EQ(parts.validation->get(0)[0].to_vector<float>()[11], 1);

  const DataSource augmented = open_data(npz, {.augment = Augment::light});
  EXPECT_NE(augmented.transforms.find("RandomCrop"), std::string::npos) << augmented.transforms;
  EXPECT_EQ(augmented.train->get(0)[0].shape(), (Shape{1, 3, 4}));
  EXPECT_EQ(augmented.validation->get(0)[0].to_vector<float>(), packed.validation->get(0)[0].to_vector<float>());

  folder.write("x.npy", x);
  EXPECT_ERROR(open_data(folder / "x.npy"), "has x without y, expected labels to learn");
  folder.write("y.npy", y);
  EXPECT_EQ(open_data(folder / "x.npy").train->size(), packed.train->size()) << "y.npy beside it";
  EXPECT_ERROR(open_data(folder.write("b.npz", zip({{"a.npy", x}}, true))),
               "has the arrays \"a\", expected x (or data");
  folder.write("named/Images.npy", x);
  folder.write("named/test-labels.npy", y);
  folder.write("named/other.npy", x);
  EXPECT_ERROR(open_data(folder / "named"),
               "has x without y, expected labels to learn; found the arrays \"Images\", "
               "\"other\", \"test-labels\"");
  std::filesystem::rename(folder / "named/test-labels.npy", folder / "named/labels.npy");
  EXPECT_EQ(open_data(folder / "named").train->size(), packed.train->size());
  EXPECT_EQ(open_data(folder / "named/Images.npy").train->size(), packed.train->size());
  EXPECT_EQ(open_data(folder.write("s.npz", zip({{"arr_0.npy", x}, {"arr_1.npy", y}}, true))).train->size(),
            packed.train->size());
  EXPECT_ERROR(open_data(folder.write("s3.npz", zip({{"arr_0.npy", x}, {"arr_1.npy", y}, {"arr_2.npy", y}}, true))),
               "\"arr_2\", expected x");
  folder.write("named/x.npy", x);
  EXPECT_ERROR(open_data(folder / "named"), "both \"Images\" and \"x\" may be the inputs");

  const DataSource scaled = open_data(npz, {.normalization = Normalization::training});
  const DataSource turned = open_data(npz, {.transforms = {.flip = 1}, .normalization = Normalization::training});
  const std::vector<float> plain = scaled.train->get(5)[0].to_vector<float>(),
                           mirrored = turned.train->get(5)[0].to_vector<float>();
  EXPECT_NEAR(plain[0], mirrored[3], 1e-5) << "normalized after the transforms, by the same numbers";
  const DataSource given = open_data(npz, {.mean = {0.5}, .stddev = {0.25}});
  EXPECT_NEAR(given.train->get(0)[0].to_vector<float>()[0], (packed.train->get(0)[0].to_vector<float>()[0] - 0.5) * 4,
              1e-5);
  EXPECT_ERROR(open_data(npz, {.mean = {1, 2}, .stddev = {1}}), "mean and stddev have 2 and 1 numbers");
  EXPECT_ERROR(open_data(npz, {.target = "y"}), "expected a table for target");
}

TEST(OpenData, ReadsSafetensorsAsItReadsNpz) {
  TemporaryFolder folder;
  std::vector<float> numbers;
  std::vector<std::int64_t> kinds;
  for (int i = 0; i < 60; ++i) {
    numbers.push_back(static_cast<float>(i) / 7);
    if (i % 2 == 0) kinds.push_back(i / 2 % 3);
  }
  const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  write_safetensors(folder / "a.safetensors", std::vector<TensorBytes>{{"x", DType::f32, Shape{30, 2}, bytes(numbers)},
                                                                       {"y", DType::i64, Shape{30}, bytes(kinds)}});
  folder.write("a.npz", zip({{"x.npy", npy("<f4", "(30, 2)", bytes_of(numbers))},
                             {"y.npy", npy("<i8", "(30,)", bytes_of(kinds))}},
                            false));
  const DataSource a = open_data(folder / "a.safetensors"), b = open_data(folder / "a.npz");
  ASSERT_EQ(a.train->size(), b.train->size());
  EXPECT_EQ(*a.schema.array, *b.schema.array);
  for (std::int64_t i = 0; i < a.train->size(); ++i) {
    EXPECT_EQ(a.train->get(i)[0].to_vector<float>(), b.train->get(i)[0].to_vector<float>());
  }
}

TEST(OpenData, ReadsIdxAndCifarFolders) {
  TemporaryFolder folder;
  std::string pixels(20 * 4, '\x33');
  std::string kinds;
  for (int i = 0; i < 20; ++i) kinds += static_cast<char>(i % 2);
  folder.write("idx/train-images-idx3-ubyte.gz", gzip(idx_header({20, 2, 2}) + pixels));
  folder.write("idx/train-labels-idx1-ubyte", idx_header({20}) + kinds);
  folder.write("idx/t10k-images-idx3-ubyte", idx_header({1, 2, 2}) + "abcd");
  folder.write("idx/t10k-labels-idx1-ubyte", idx_header({1}) + "\1");
  const DataSource idx = open_data(folder / "idx");
  EXPECT_EQ(idx.schema.format, DataFormat::idx);
  EXPECT_EQ(idx.train->size(), 20);
  EXPECT_EQ(idx.validation->size(), 1);
  EXPECT_EQ(idx.train->get(0)[0].to_vector<float>()[0], 51 / 255.0f);
  EXPECT_TRUE(idx.digest_covers_contents);
  folder.write("idx/t10k-images-idx3-ubyte", idx_header({1, 2, 2}) + "abce");
  const DataSource other_test = open_data(folder / "idx");
  EXPECT_EQ(other_test.digest, idx.digest);
  EXPECT_NE(other_test.validation_digest, idx.validation_digest) << "the test part decides results, too";
  // MNIST and what stands for it have ten classes; others have those that occur.
  EXPECT_EQ(idx.schema.outputs, 10);
  folder.write("idx/train-labels-idx1-ubyte", idx_header({20}) + std::string(10, '\1') + std::string(10, '\x0f'));
  const DataSource letters = open_data(folder / "idx");
  EXPECT_EQ(letters.schema.classes, (std::vector<std::string>{"1", "15"}));
  folder.write("idx/t10k-images-idx3-ubyte", idx_header({1, 2, 2}) + "abcf");
  EXPECT_NE(open_data(folder / "idx").digest, letters.digest);
  // Of a file and its gzipped copy, the plain one counts.
  folder.write("idx/t10k-images-idx3-ubyte.gz", gzip(idx_header({1, 2, 2}) + "zzzz"));
  EXPECT_EQ(open_data(folder / "idx").validation->get(0)[0].to_vector<float>()[0], 'a' / 255.0f);

  std::string records;
  for (int i = 0; i < 20; ++i) records += static_cast<char>(i % 2) + std::string(3072, static_cast<char>(i));
  folder.write("cifar/data_batch_1.bin", records);
  const DataSource cifar = open_data(folder / "cifar", {.val_split = 0.3});
  EXPECT_EQ(cifar.schema.format, DataFormat::cifar);
  EXPECT_EQ(cifar.schema.outputs, 10);
  EXPECT_EQ(cifar.train->size() + cifar.validation->size(), 20);
}

TEST(OpenData, ReadsTexts) {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "to be, or not to be\n";
  const DataSource data = open_data(folder.write("play.txt", text), {.context = 16, .random_starts = false});
  EXPECT_EQ(data.schema.task, TaskKind::language);
  EXPECT_EQ(data.schema.outputs, 9);
  EXPECT_EQ(data.train->get(0)[0].shape(), (Shape{16}));
  EXPECT_EQ(data.validation->size(), (static_cast<std::int64_t>(text.size()) / 10 - 1) / 16);
  EXPECT_ERROR(open_data(folder / "play.txt", {.task = TaskKind::regression, .context = 16}), "expected language");
  EXPECT_ERROR(open_data(folder.write("short.txt", "to be"), {.context = 16}), "are too few for a context of 16");
}

// Each option for the data that have no use for it.
TEST(OpenData, RefusesOptionsWithoutAUse) {
  TemporaryFolder folder;
  const std::filesystem::path table = folder.write("a.csv", flowers(50)),
                              text = folder.write("a.txt", std::string(400, 'a'));
  folder.write("arrays/x.npy", npy("<f4", "(8, 2)", bytes_of(std::vector<float>(16))));
  folder.write("arrays/y.npy", npy("<i8", "(8,)", bytes_of(std::vector<std::int64_t>{0, 1, 0, 1, 0, 1, 0, 1})));
  const std::filesystem::path arrays = folder / "arrays";
  for (const auto& path : {text, arrays}) {
    EXPECT_ERROR(open_data(path, {.target = "a"}), "expected a table for target");
    EXPECT_ERROR(open_data(path, {.ignore = {"a"}}), "expected a table for ignore");
    EXPECT_ERROR(open_data(path, {.categories = {"a"}}), "expected a table for categories");
    EXPECT_ERROR(open_data(path, {.delimiter = ';'}), "expected a table for delimiter");
    EXPECT_ERROR(open_data(path, {.header = false}), "expected a table for header");
    EXPECT_ERROR(open_data(path, {.skip_broken = true}), "expected a table or a folder of pictures for skip_broken");
  }
  for (const auto& path : {text, arrays, table}) {
    EXPECT_ERROR(open_data(path, {.image_size = 8}), "expected a folder of pictures for image_size");
    EXPECT_ERROR(open_data(path, {.max_pixels = 8}), "expected a folder of pictures for max_pixels");
  }
  for (const auto& path : {text, table}) {
    EXPECT_ERROR(open_data(path, {.augment = Augment::light}), "expected pictures for augmentation");
    EXPECT_ERROR(open_data(path, {.transforms = {.rotation = 5}}), "expected pictures for augmentation");
    EXPECT_ERROR(open_data(path, {.normalization = Normalization::none}), "expected pictures for normalization");
    EXPECT_ERROR(open_data(path, {.mean = {0}}), "expected pictures for mean");
    EXPECT_ERROR(open_data(path, {.stddev = {1}}), "expected pictures for stddev");
  }
  EXPECT_ERROR(open_data(table, {.context = 64}), "a.csv: csv, expected a text for context");
  EXPECT_ERROR(open_data(arrays, {.context = 64}), "arrays: npy, expected a text for context");
}

TEST(DetectFormat, GoesByTheContentAndTheName) {
  TemporaryFolder folder;
  EXPECT_EQ(detect_format(folder.write("a.txt", flowers(20))), DataFormat::csv) << "columns with numbers";
  EXPECT_EQ(detect_format(folder.write("b.txt", "one, two\nthree, four\n")), DataFormat::text);
  EXPECT_EQ(detect_format(folder.write("c.csv", "x\n1\n")), DataFormat::csv);
  EXPECT_EQ(detect_format(folder.write("d.csv.gz", gzip("x\n1\n"))), DataFormat::csv);
  EXPECT_EQ(detect_format(folder.write("e", npy("<f4", "(0,)", ""))), DataFormat::npy);
  EXPECT_EQ(detect_format(folder.write("f.safetensors", "{}")), DataFormat::safetensors);
  folder.write("g/cat/1.png", "");
  EXPECT_EQ(detect_format(folder / "g"), DataFormat::images);
  EXPECT_ERROR(detect_format(folder / "none"), "No such file or directory");
  EXPECT_ERROR(detect_format(folder.write("h", "")), "h: empty");
  EXPECT_ERROR(detect_format(folder.write("h", "\xff\xd8\xff\xe0")),
               "a single JPEG picture, expected a .csv or .tsv table");
  EXPECT_ERROR(detect_format(folder.write("h", std::string("a\0b", 3))), "byte 1 is NUL, so it is no text, expected");
  folder.write("i/readme.md", "x");
  EXPECT_ERROR(detect_format(folder / "i"), "the folder has \"readme.md\", expected");
}

TEST(DataSchema, ReturnsFromJson) {
  TemporaryFolder folder;
  const std::string odd = "x\xff,\"a\nb\",kind\n0.1,\xfe,y\n0.3,bytes:00,n\n0.7,\"\",y\n1e-300,\xc3\xa4,n\n";
  const DataSource table = open_data(folder.write("a.csv", odd), {.header = true, .val_split = 0});
  EXPECT_EQ(DataSchema::from_json(table.schema.json()), table.schema);
  EXPECT_EQ(table.schema.table->columns[0].name, "x\xff");
  const DataSource numbers = open_data(folder.write("b.csv", flowers(50, true)), {.val_split = 0});
  EXPECT_EQ(DataSchema::from_json(numbers.schema.json()), numbers.schema);
  const std::string x = npy("<f8", "(4, 2)", bytes_of<double>({0.1, 2, 3, 4, 5, 6, 7, 8}));
  folder.write("c.npz",
               zip({{"x.npy", x}, {"y.npy", npy("<i8", "(4,)", bytes_of<std::int64_t>({-5, 7, 7, -5}))}}, false));
  const DataSource arrays = open_data(folder / "c.npz", {.task = TaskKind::classification, .val_split = 0});
  EXPECT_EQ(DataSchema::from_json(arrays.schema.json()), arrays.schema);
}

TEST(DataSchema, NamesWhatIsWrong) {
  TemporaryFolder folder;
  const std::string valid = open_data(folder.write("a.csv", flowers(50)), {.val_split = 0}).schema.json();
  const auto with = [&](const std::string& old, const std::string& now) {
    std::string text = valid;
    const std::size_t at = text.find(old);
    ASSERT_NE(at, text.npos) << old;
    DataSchema::from_json(text.replace(at, old.size(), now));
  };
  EXPECT_ERROR(DataSchema::from_json("{"), "data schema: not valid JSON");
  EXPECT_ERROR(DataSchema::from_json("[]"), "data schema: it is [], expected an object");
  EXPECT_ERROR(with("\"version\": 1", "\"version\": 2"), "data schema: version 2, expected 1");
  EXPECT_ERROR(with("\"csv\"", "\"parquet\""), "format \"parquet\": expected images, csv");
  EXPECT_ERROR(with("\"outputs\": 3", "\"outputs\": 4"), "data schema: 4 outputs, 3 classes");
  EXPECT_ERROR(with("\"stddev\": ", "\"stddev\": -"), "expected a number above 0");
  EXPECT_ERROR(with("\"blue\"", "\"zebra\""), "are not sorted");
  EXPECT_ERROR(with("\"missing\": true", "\"missing\": false"), "have 3 features, the input another number");
  EXPECT_ERROR(with("\"k0\"", "\"bytes:0\""), "expected hexadecimal bytes");
}

TEST(OpenExamples, EncodesNewDataAsInTraining) {
  TemporaryFolder folder;
  const auto path = folder.write("flowers.csv", flowers(100));
  const DataSource data = open_data(path, {.val_split = 0});
  const DataExamples again = open_examples(path, data.schema);
  EXPECT_TRUE(again.labeled);
  EXPECT_EQ(again.names.back(), "100");
  for (const std::int64_t i : {0, 17, 99}) {
    EXPECT_EQ(again.data->get(i)[0].to_vector<float>(), data.train->get(i)[0].to_vector<float>());
    EXPECT_EQ(again.data->get(i)[1].item<std::int64_t>(), data.train->get(i)[1].item<std::int64_t>());
  }
  const DataExamples unlabeled = open_examples(folder.write("new.csv", "color,length,width\nred,1,2\n"), data.schema);
  EXPECT_FALSE(unlabeled.labeled);
  EXPECT_EQ(unlabeled.data->get(0).size(), 1u);
  const auto green = folder.write("green.csv", "color,length,width\ngreen,1,2\n");
  EXPECT_ERROR(open_examples(green, data.schema), "line 2, column 1 (color): \"green\" is none of the 3 categories");
  EXPECT_EQ(open_examples(green, data.schema, {.unseen = Unseen::as_missing}).data->get(0)[0].to_vector<float>()[3], 0);

  const std::string x = npy("<f4", "(2, 2)", bytes_of<float>({0, 2, 4, 6}));
  folder.write("a.npz", zip({{"x.npy", x}, {"y.npy", npy("<i8", "(2,)", bytes_of<std::int64_t>({0, 1}))}}, false));
  const DataSource arrays = open_data(folder / "a.npz", {.task = TaskKind::classification, .val_split = 0});
  const DataExamples rows =
      open_examples(folder.write("x.npy", npy("<f4", "(1, 2)", bytes_of<float>({2, 8}))), arrays.schema);
  EXPECT_FALSE(rows.labeled);
  EXPECT_EQ(rows.data->get(0)[0].to_vector<float>(), (std::vector<float>{0, 2}));
}

TEST(OpenExamples, ReadsTablesAsInTraining) {
  TemporaryFolder folder;
  const auto path = folder.write("a.csv", "x|k\n1|a\n2|b\n3|a\n4|b\n");
  const DataSource data = open_data(path, {.delimiter = '|', .val_split = 0});
  EXPECT_EQ(open_examples(path, DataSchema::from_json(data.schema.json())).data->size(), 4);
}

TEST(OpenData, ADigestOfArraysCoversTheirNumbers) {
  TemporaryFolder folder;
  const auto digest = [&](std::int64_t first) {
    folder.write("x.npy", npy("|u1", "(2, 1, 1)", "ab"));
    folder.write("y.npy", npy("<i8", "(2,)", bytes_of<std::int64_t>({first, 1 - first})));
    return open_data(folder.path(), {.task = TaskKind::classification, .val_split = 0}).digest;
  };
  EXPECT_NE(digest(0), digest(1));
}

TEST(TableMlp, LooksUpCategories) {
  TableMlp net({.numbers = 1, .vocabularies = {3, 5}, .missing = {false, true}, .classes = 2, .hidden = {4}});
  const Tensor y = net(Tensor::from({0.5f, 2.0f, 4.0f, 0.5f, 0.0f, 4.0f}, {2, 3}));
  EXPECT_EQ(y.shape(), (Shape{2, 2}));
  EXPECT_EQ(net["embeddings.0.weight"].shape(), (Shape{3, 2}));
  EXPECT_EQ(net["mlp.0.weight"].shape(), (Shape{4, 6}));
  EXPECT_EQ(Tensor(net["embeddings.0.weight"]).select(0, 0).to_vector<float>(), (std::vector<float>{0, 0}))
      << "never missing";
  EXPECT_ERROR(net(Tensor::host({2, 2})), "table mlp: input is");
  TableMlp large({.numbers = 0, .vocabularies = {300}, .classes = 2});
  EXPECT_ERROR(large(Tensor::host({1, 1}, DType::bf16)),
               "table mlp: 299 categories in a column, bf16 counts exactly to 256");
  EXPECT_ERROR(TableMlp({.classes = 2}), "table mlp: no features");
}

}  // namespace
}  // namespace lockstep
