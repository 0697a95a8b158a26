#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/data/formats/image.h"
#include "lockstep/task/data_source.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

// A square of one color.
void draw(const TemporaryFolder& folder, const std::string& name, std::int64_t edge, std::vector<std::uint8_t> color) {
  std::vector<std::uint8_t> pixels;
  for (const std::uint8_t shade : color) pixels.insert(pixels.end(), static_cast<std::size_t>(edge * edge), shade);
  std::filesystem::create_directories((folder / name).parent_path());
  write_png(folder / name, Tensor::from(pixels, {std::ssize(color), edge, edge}));
}

void draw_classes(const TemporaryFolder& folder, const std::string& root, int count, bool mixed = true) {
  for (int i = 0; i < count; ++i) {
    const auto shade = static_cast<std::uint8_t>(i * 7);
    draw(folder, fmt::format("{}red/{}.png", root, i), 20 + (mixed ? i : 0), {200, shade, 0});
    draw(folder, fmt::format("{}blue/{}.png", root, i), 20, {0, shade, 200});
  }
}

TEST(OpenImages, SplitsAndNormalizesAFolder) {
  TemporaryFolder folder;
  draw_classes(folder, "a/", 20);
  const DataSource data = open_data(folder / "a", {.val_split = 0.3});
  EXPECT_EQ(data.schema.format, DataFormat::images);
  EXPECT_EQ(data.schema.classes, (std::vector<std::string>{"blue", "red"}));
  EXPECT_EQ(data.schema.input, (std::vector<std::int64_t>{3, 32, 32}));
  EXPECT_EQ(data.train->size() + data.validation->size(), 40);
  EXPECT_GT(data.validation->size(), 0);
  EXPECT_EQ(data.train_counts[0] + data.validation_counts[0], 20);
  EXPECT_EQ(data.train->get(0)[0].shape(), (Shape{3, 32, 32}));
  EXPECT_EQ(data.train->get(0)[0].dtype(), DType::f32);
  EXPECT_NE(data.description.find(
                "pictures, color, 20 x 20 to 39 x 39 pixels (height x width), used as 32 x 32; blue 20, red 20; "),
            std::string::npos)
      << data.description;
  EXPECT_EQ(DataSchema::from_json(data.schema.json()), data.schema);

  const DataExamples all = open_examples(folder / "a", data.schema);
  EXPECT_TRUE(all.labeled);
  EXPECT_EQ(all.data->size(), 40);
  const DataExamples one = open_examples(folder / "a/red/3.png", data.schema);
  EXPECT_FALSE(one.labeled);
  EXPECT_EQ(one.names, (std::vector<std::string>{"3.png"}));
  EXPECT_EQ(open_examples(folder / "a/red", data.schema).data->size(), 20);
  for (std::size_t i = 0; i < all.names.size(); ++i) {
    if (all.names[i] != "red/3.png") continue;
    EXPECT_EQ(one.data->get(0)[0].to_vector<float>(),
              all.data->get(static_cast<std::int64_t>(i))[0].to_vector<float>());
  }
}

TEST(OpenImages, PicturesToPredictNeedNoClasses) {
  TemporaryFolder folder;
  draw_classes(folder, "a/", 3);
  const DataSchema schema = open_data(folder / "a", {.val_split = 0}).schema;
  draw(folder, "new/2.png", 20, {200, 0, 0});
  draw(folder, "new/more/1.png", 20, {200, 0, 0});
  folder.write("new/.hidden", "no picture");
  EXPECT_ERROR(open_examples(folder / "new", schema), "class \"more\" is none of the 2 of training");
  const DataExamples all = open_examples(folder / "new", schema, {.labels = false});
  EXPECT_EQ(all.names, (std::vector<std::string>{"2.png", "more/1.png"}));
  EXPECT_FALSE(all.labeled);
  EXPECT_EQ(all.data->get(1).size(), 1u);
}

TEST(OpenImages, UsesThePartsOfAFolder) {
  TemporaryFolder folder;
  draw_classes(folder, "a/train/", 3, false);
  draw_classes(folder, "a/test/", 2, false);
  const DataSource data = open_data(folder / "a", {.augment = Augment::light});
  EXPECT_EQ(data.train->size(), 6);
  EXPECT_EQ(data.validation->size(), 4);
  EXPECT_EQ(data.schema.input, (std::vector<std::int64_t>{3, 20, 20})) << "pictures of one size keep it";
  EXPECT_EQ(open_data(folder / "a", {.image_size = 8}).schema.input, (std::vector<std::int64_t>{3, 8, 8}));
  EXPECT_NE(data.transforms.find("RandomCrop"), std::string::npos) << data.transforms;
  EXPECT_NE(data.transforms.find("libjpeg-turbo "), std::string::npos) << data.transforms;
  EXPECT_EQ(data.transforms.find("png"), std::string::npos) << "every library for PNG gives the same pixels";
  EXPECT_NE(data.description.find(", augmented (light)"), std::string::npos);
  EXPECT_TRUE(data.has_validation_part);
  // Upper case, other words, and folders beside the parts.
  draw_classes(folder, "b/Training/", 3, false);
  draw_classes(folder, "b/TESTING/", 2, false);
  draw_classes(folder, "b/more/", 1, false);
  const DataSource other = open_data(folder / "b");
  EXPECT_EQ(other.schema.classes, data.schema.classes);
  EXPECT_EQ(other.validation->size(), 4);
  EXPECT_NE(other.description.find("; not used: \"more\""), std::string::npos) << other.description;
  // Pictures of trains are a class.
  draw_classes(folder, "c/", 3, false);
  draw(folder, "c/train/1.png", 20, {0, 0, 0});
  EXPECT_EQ(open_data(folder / "c", {.val_split = 0}).schema.classes.size(), 3u);
  draw(folder, "a/test/green/1.png", 20, {0, 200, 0});
  EXPECT_ERROR(open_data(folder / "a"), "class \"green\" is none of the 2 of training");
}

// What was decoded to open them is there for training, unless a random crop needs the whole picture.
TEST(OpenImages, KeepsSmallPicturesInMemory) {
  const auto example_after = [](bool mixed, Augment augment) {
    TemporaryFolder folder;
    draw_classes(folder, "a/train/", 3, mixed);
    draw_classes(folder, "a/test/", 2, mixed);
    const DataSource data = open_data(folder / "a", {.augment = augment});
    data.validation->get(3);
    const std::vector<float> before = data.train->get(5)[0].to_vector<float>();
    std::filesystem::remove_all(folder / "a");
    data.validation->get(3);
    EXPECT_EQ(data.train->get(5)[0].to_vector<float>(), before);
  };
  example_after(true, Augment::none);
  example_after(true, Augment::light);
  example_after(false, Augment::standard);
  EXPECT_ERROR(example_after(true, Augment::standard), "cannot read ");
}

TEST(OpenImages, NamesWhatIsWrong) {
  TemporaryFolder folder;
  draw(folder, "one/red/1.png", 20, {200, 0, 0});
  EXPECT_ERROR(open_data(folder / "one"), "one class, \"red\", expected a folder of pictures for each of at least two");
  draw_classes(folder, "a/", 3);
  EXPECT_ERROR(open_data(folder / "a", {.task = TaskKind::regression}), "expected classification");
  EXPECT_ERROR(open_data(folder / "a", {.target = "x"}), "expected a table for target");
  folder.write("a/red/broken.png", "no picture");
  EXPECT_ERROR(open_data(folder / "a"), "broken.png");
  EXPECT_EQ(open_data(folder / "a", {.val_split = 0, .skip_broken = true}).skipped, 1);
}

}  // namespace
}  // namespace lockstep
