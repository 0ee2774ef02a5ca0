"""A store in memory, whose objects a test may damage."""

from swift_loader.errors import ShardError
from swift_loader.shards.store import Found


class InMemory:
    """A dict as a store."""

    where = "memory"

    def __init__(self, objects):
        self.objects = dict(objects)

    @classmethod
    def of(cls, folder):
        return cls({path.name: path.read_bytes() for path in folder.iterdir()})

    def nbytes(self, name):
        return len(self.whole(name))

    def read(self, name, offset, nbytes):
        data = self.whole(name)[offset : offset + nbytes]
        if len(data) < nbytes:
            raise ShardError.at("the object ends too early", offset + len(data)).within(name, self.where)
        return data

    def whole(self, name):
        try:
            return self.objects[name]
        except KeyError:
            raise FileNotFoundError(name) from None

    def listed(self, prefix=""):
        return (Found(name, len(data)) for name, data in sorted(self.objects.items()) if name.startswith(prefix))
