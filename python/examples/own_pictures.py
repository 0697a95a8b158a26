"""Pictures of your own: a folder with a folder for each class. The model trains on all devices of the program.

    LOCKSTEP_DEVICES=2 python3 own_pictures.py photos [epochs]
"""

import sys

import lockstep as torch
from lockstep import datasets, nn, transforms
from lockstep.utils.data import DataLoader, random_split

folder, epochs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5

torch.manual_seed(0)
photos = datasets.ImageFolder(folder, transforms.Compose([
    transforms.Resize((32, 32)),
    transforms.ToTensor(),
    transforms.Normalize([0.5, 0.5, 0.5], [0.25, 0.25, 0.25]),
]))
train, test = random_split(photos, [0.8, 0.2])
print(f"{len(photos)} pictures, classes: {', '.join(photos.classes)}")

net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(32 * 8 * 8, len(photos.classes)),
)
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
train_loader = DataLoader(train, batch_size=16, shuffle=True, num_workers=2)
test_loader = DataLoader(test, batch_size=16)
for epoch in range(1, epochs + 1):
    net.train()
    for x, y in train_loader.on(net):
        optimizer.zero_grad()
        loss_fn(net(x), y).backward()
        optimizer.step()
    net.eval()
    right = total = 0
    with torch.no_grad():
        for x, y in test_loader:
            right += (net(x).argmax(1) == y).sum().item()
            total += y.numel()
    print(f"epoch {epoch}, test acc {right / total:.2f}")
torch.save(net.state_dict(), "pictures.safetensors")
